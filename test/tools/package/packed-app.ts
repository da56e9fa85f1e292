import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const repo = fileURLToPath(new URL('../../..', import.meta.url));
const modules = join(repo, 'node_modules');

export interface PackedApp {
  dir: string;
  /** The package's file. */
  tarball: string;
  /** The package as it was unpacked. */
  packageDir: string;
}

/**
 * A third-party project that has installed netdra: built, packed, unpacked into its `node_modules`, with what it
 * depends on beside it. Nothing in it leads into our sources.
 * @param dir an empty folder outside of the repository
 * @param programs packages of ours that the project's author has, too
 */
export function makePackedApp(dir: string, programs: string[] = []): PackedApp {
  const stage = join(dir, 'stage');
  mkdirSync(stage);
  const { files } = JSON.parse(readFileSync(join(repo, 'package.json'), 'utf8')) as { files: string[] };
  for (const file of ['package.json', 'README.md', 'LICENSE', ...files.filter((each) => !/^(dist|!)/.test(each))]) {
    cpSync(join(repo, file), join(stage, file), { recursive: true });
  }
  run(repo, 'bash', ['scripts/build-library.sh', join(stage, 'dist/lib')]);
  // Built already; what `npm run build` does in a checkout.
  const npm = ['pack', '--ignore-scripts', '--pack-destination', dir, '--cache', join(dir, 'npm-cache'), '--json'];
  const [packed] = JSON.parse(run(stage, 'npm', npm)) as { filename: string }[];
  const tarball = join(dir, packed?.filename ?? '');
  const packageDir = join(dir, 'app/node_modules/netdra');
  mkdirSync(packageDir, { recursive: true });
  run(dir, 'tar', ['-xzf', tarball, '-C', packageDir, '--strip-components=1']);
  const { dependencies } = JSON.parse(readFileSync(join(packageDir, 'package.json'), 'utf8'));
  for (const name of [...Object.keys(dependencies), ...programs]) link(join(dir, 'app/node_modules', name), name);
  writeFileSync(join(dir, 'app/package.json'), JSON.stringify({ name: 'app', type: 'module' }));
  // Creates the links to the commands, the last step of an installation.
  run(join(dir, 'app'), 'npm', ['rebuild', '--ignore-scripts', '--cache', join(dir, 'npm-cache'), 'netdra']);
  return { dir: join(dir, 'app'), tarball, packageDir };
}

function link(path: string, name: string): void {
  if (!existsSync(join(modules, name))) throw new Error(`package ${name} is not installed: npm install`);
  mkdirSync(dirname(path), { recursive: true });
  symlinkSync(join(modules, name), path);
}

function run(cwd: string, program: string, args: string[]): string {
  const PATH = `${join(modules, '.bin')}:${process.env.PATH}`;
  return execFileSync(program, args, { cwd, env: { ...process.env, PATH }, encoding: 'utf8', stdio: 'pipe' });
}
