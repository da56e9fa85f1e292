import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addByPnpm } from '../../../e2e/release/pnpm.ts';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import type { Finding } from '../../../src/cli/finding.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { findBrokenLinks } from '../../unit/docs/links.ts';
import { makePackedApp, type PackedApp } from './packed-app.ts';

const repo = fileURLToPath(new URL('../../..', import.meta.url));
const manifest = JSON.parse(readFileSync(join(repo, 'package.json'), 'utf8'));
const names = ['kubeletplugin', 'metadata', 'resourceslice', 'nri', 'nri/testing'];
const guide = readFileSync(join(repo, 'docs/driver-authors.md'), 'utf8');
const exampleDriver = readFileSync(join(repo, 'examples/driver/driver.ts'), 'utf8');

const [excerpt = '', ...otherBlocks] = [...guide.matchAll(/^```ts\n(.*?)^```$/gms)].map(([, block = '']) => block);
/** The example driver with the guide's other blocks added, and a file that imports everything. */
const authorFiles = {
  'driver.ts': [
    ...otherBlocks.flatMap((block) => block.match(/^import .*$/gm) ?? []),
    exampleDriver,
    ...otherBlocks.map(
      (block, index) => `export const more${index} = async () => {\n${block.replaceAll(/^import .*$/gm, '')}};`,
    ),
  ].join('\n'),
  'all.ts': names.map((name, index) => `export * as module${index} from 'netdra/${name}';\n`).join(''),
};

/** What the compiler finds in files of a strict project. */
function typeErrors(dir: string, files: Record<string, string>, tsc = join(repo, 'node_modules/.bin/tsc')): string[] {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(dir, name), text);
  const compilerOptions = {
    target: 'es2024',
    lib: ['es2024', 'esnext.disposable'],
    module: 'nodenext',
    types: ['node'],
    strict: true,
    noEmit: true,
    exactOptionalPropertyTypes: true,
  };
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: Object.keys(files) }));
  const { stdout, error } = spawnSync(tsc, ['-p', dir], { encoding: 'utf8' });
  if (error !== undefined) throw error;
  return stdout.split('\n').filter((line) => /\berror\b/.test(line));
}

describe('the npm package', () => {
  let dir: ReturnType<typeof tempDir>;
  let app: PackedApp;
  beforeAll(() => {
    dir = tempDir();
    app = makePackedApp(dir.path, ['@types/node', 'typescript']);
  }, 60_000);
  afterAll(() => dir[Symbol.dispose]());

  it('is built before it is packed', () => {
    expect(manifest.scripts).toMatchObject({
      prepack: 'npm run build',
      build: expect.stringMatching(/scripts\/build-library\.sh$/),
    });
    expect(Object.keys(manifest.exports)).toEqual(names.map((name) => `./${name}`));
  });

  it('has a guide that quotes the example driver, which has fewer than 100 lines', () => {
    expect(exampleDriver.endsWith(excerpt)).toBe(true);
    expect(excerpt.split('\n').length).toBeGreaterThan(30);
    expect(exampleDriver.trimEnd().split('\n').length).toBeLessThan(100);
  });

  // One that reads a kubeconfig is the first to need it: it takes as much memory as all the rest.
  it('can be imported by plain Node.js without the API client and without side effects', () => {
    const imports = names.map((name) => `import('netdra/${name}')`).join(', ');
    const main = join(app.dir, 'main.js');
    writeFileSync(
      main,
      `import { registerHooks } from 'node:module';
       const loaded = [];
       registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) });
       const modules = await Promise.all([${imports}]);
       console.log(JSON.stringify({ modules: modules.map((module) => Object.keys(module)), loaded }));`,
    );
    const { modules, loaded } = JSON.parse(execFileSync(process.execPath, [main], { encoding: 'utf8' }));
    const [kubeletplugin, metadata, resourceslice, nri, testing] = modules;
    expect(kubeletplugin).toEqual(expect.arrayContaining(['startKubeletPlugin', 'ResourceApi', 'systemClock']));
    expect(metadata).toEqual(expect.arrayContaining(['ClaimMetadata', 'CdiSpecs', 'layouts', 'readMetadataFile']));
    expect(resourceslice).toEqual(expect.arrayContaining(['SlicePublisher', 'createSliceApi']));
    expect(nri).toEqual(expect.arrayContaining(['createPlugin']));
    expect(testing).toEqual(expect.arrayContaining(['FakeRuntime']));
    expect(loaded.filter((url: string) => url.includes('/@grpc/grpc-js/'))).not.toEqual([]);
    expect(loaded.filter((url: string) => url.includes('/client-node/'))).toEqual([]);
  });

  it.each(names)('rejects an older Node.js in one line: netdra/%s', (name) => {
    const versions = "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '22.19.0' } });";
    const main = `${versions} import('netdra/${name}').catch((error) => console.log(error.message));`;
    const output = execFileSync(process.execPath, ['--eval', main], { cwd: app.dir, encoding: 'utf8' });
    expect(output).toBe('netdra: Node.js 24 or newer is needed, this is 22.19.0\n');
  });

  it('rejects an older Node.js before any syntax that this Node.js cannot parse', () => {
    const found = spawnSync('grep', ['-rEn', '^\\s*(await )?using \\w', 'dist/lib/src', 'dist/lib/nri'], {
      cwd: app.packageDir,
    });
    expect(found.status).toBe(1);
  });

  it('finds its protobuf definitions where it was unpacked', () => {
    const main = join(app.dir, 'runtime.js');
    writeFileSync(
      main,
      `import { FakeRuntime } from 'netdra/nri/testing';
       await using runtime = new FakeRuntime({ socketPath: ${JSON.stringify(join(app.dir, 'nri.sock'))} });
       await runtime.start();`,
    );
    execFileSync(process.execPath, [main]);
  });

  it('has the command netdra, which needs no file outside the package', () => {
    // It installs nothing and asks no registry; npm's own warnings are about the machine.
    const options = ['--no', '--offline', '--loglevel=error', '--cache', join(dir.path, 'npm-cache')];
    const npx = (...args: string[]) =>
      spawnSync('npx', [...options, '--', 'netdra', ...args], { cwd: app.dir, encoding: 'utf8' });
    const nowhere = join(app.dir, 'nowhere');
    const flags = ['--kubelet-plugins-dir', '--kubelet-registry-dir', '--cdi-dir', '--nri-socket', '--cri-socket'];
    // It needs the native packages, the API client and the wire contracts of the runtime.
    const doctor = npx('doctor', '-o', 'json', ...flags.map((flag) => `${flag}=${nowhere}`));
    expect([doctor.status, doctor.stderr]).toEqual([1, '']);
    const findings: Finding[] = JSON.parse(doctor.stdout);
    expect(findings.find(({ check }) => check === 'NRI')).toMatchObject({
      level: 'problem',
      message: `off: there is no socket ${nowhere}`,
    });
    expect(findings.find(({ check }) => check === 'CDI directory')).toMatchObject({ level: 'problem' });
    const claims = npx('claims', `--kubelet-plugins-dir=${nowhere}`);
    expect(claims).toMatchObject({
      status: 1,
      stdout: '',
      stderr: expect.stringContaining(`stored its state in ${nowhere}`),
    });
    expect(npx('run', '--node-name=n', '--log-level=loud')).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("option '--log-level <level>' argument 'loud' is invalid"),
    });
    expect(npx('--version')).toMatchObject({ status: 0, stdout: `${manifest.version}\n` });
    const plugin = spawnSync('npx', [...options, '--', 'kubectl-netdra', '--help'], { cwd: app.dir, encoding: 'utf8' });
    expect(plugin).toMatchObject({ status: 0, stdout: expect.stringMatching(/^Usage: kubectl netdra /) });
    // What older versions of Node.js cannot parse is behind a check of the version.
    const command = readFileSync(join(app.packageDir, manifest.bin.netdra), 'utf8');
    const older = command.replace('process.versions.node', "'22.19.0'");
    writeFileSync(join(app.packageDir, dirname(manifest.bin.netdra), 'older.mjs'), older);
    const args = [join(app.packageDir, dirname(manifest.bin.netdra), 'older.mjs'), 'doctor'];
    expect(spawnSync(process.execPath, args, { encoding: 'utf8' })).toMatchObject({
      status: 1,
      stdout: '',
      stderr: 'netdra: Node.js 24 or newer is needed, this is 22.19.0\n',
    });
    expect([...command.matchAll(/^import .* from '([^']+)'/gm)].map(([, from]) => from)).toEqual(['node:module']);
    const licences = readFileSync(join(app.packageDir, dirname(manifest.bin.netdra), 'THIRD-PARTY-LICENSES'), 'utf8');
    expect(licences).toMatch(/^commander [\d.]+: MIT$/m);
    expect(statSync(join(app.packageDir, manifest.bin.netdra)).mode & 0o111).toBe(0o111);
  });

  it('has types that compile in a strict project and reject wrong calls', () => {
    const wrong = `import { startKubeletPlugin } from 'netdra/kubeletplugin';
       import { createPlugin } from 'netdra/nri';
       import { FakeRuntime } from 'netdra/nri/testing';
       export const helper = startKubeletPlugin({}, 1);
       export const plugin = createPlugin({ name: 1 });
       export const runtime = new FakeRuntime({ socket: '' });`;
    expect(typeErrors(app.dir, authorFiles)).toEqual([]);
    const wrongLines = typeErrors(app.dir, { 'wrong.ts': wrong }).map((line) =>
      Number(/wrong\.ts\((\d+)/.exec(line)?.[1]),
    );
    expect([...new Set(wrongLines)]).toEqual([4, 5, 6]);
  });

  it('can be installed by pnpm, with the setting in the guide for authors', () => {
    const project = join(dir.path, 'pnpm');
    mkdirSync(project);
    writeFileSync(join(project, 'package.json'), JSON.stringify({ name: 'app', type: 'module' }));
    const add = () => addByPnpm(cacheFolder(process.env), project, app.tarball);
    expect(add).toThrow(/Ignored build scripts/);
    writeFileSync(join(project, 'pnpm-workspace.yaml'), /`(allowBuilds: .*?)`/.exec(guide)?.[1] ?? '');
    add();
    // pnpm keeps what is not declared out of reach.
    expect(typeErrors(project, authorFiles, join(project, 'node_modules/.bin/tsc'))).toEqual([]);
    const help = execFileSync(join(project, 'node_modules/.bin/netdra'), ['--help'], { encoding: 'utf8' });
    expect(help).toMatch(/^Usage: netdra /);
    const run = spawnSync(process.execPath, [join(project, 'driver.ts')], {
      encoding: 'utf8',
      env: { NODE_NAME: 'node-1', SCRATCH_DIR: join(project, 'scratch'), KUBECONFIG: join(project, 'none') },
    });
    expect(run.stderr).toContain(`cannot load kubeconfig ${join(project, 'none')}`);
  }, 120_000);

  it.each(['README.md', 'nri/README.md', 'docs/driver-authors.md'])('contains everything that %s links to', (page) => {
    expect(findBrokenLinks(page, readFileSync(join(app.packageDir, page), 'utf8'), app.packageDir)).toEqual([]);
  });

  it('contains no driver sources, no tests and no path of this machine', () => {
    const files = execFileSync('find', ['.', '-type', 'f'], { cwd: app.packageDir, encoding: 'utf8' }).split('\n');
    const others = files.filter((file) => file !== `./${manifest.bin.netdra}`);
    expect(others).toHaveLength(files.length - 1);
    const code = others.filter((file) => file.startsWith('./dist/'));
    expect(code.filter((file) => /sriov|netlink|\/sandbox\/|\.test\./.test(file))).toEqual([]);
    expect(spawnSync('grep', ['-rl', repo.replace(/\/$/, ''), 'dist'], { cwd: app.packageDir }).status).toBe(1);
  });
});
