import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { locateReaderLibraries, locateReaderTool, type ReaderTool } from '../../programs/reader-tools.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { findFolderWith, pathFolders } from '../../scripts/packages/host-programs.ts';

/** An example reader in one language. */
export interface ReaderLanguage {
  name: string;
  /** Programs that are not fetched: the reader is run where the machine has them. */
  needs: string[];
  /** Compiles the reader, in a folder for its own use. @returns program and first arguments of its command line */
  build: (dir: string) => string[];
}

const consumers = fileURLToPath(new URL('../../examples/consumers', import.meta.url));
const cacheDir = cacheFolder(process.env);
const tool = (name: ReaderTool) => locateReaderTool(name, cacheDir, process.env);

/** @throws Error with the program's output */
function run(program: string, args: string[], cwd: string, env: NodeJS.ProcessEnv = {}): void {
  const options = { cwd, env: { ...process.env, ...env }, encoding: 'utf8' } as const;
  const { status, stdout, stderr, error } = spawnSync(program, args, options);
  if (status !== 0) throw new Error(`${program} ${args.join(' ')}: ${error ?? ''}\n${stdout}${stderr}`);
}

/** Compilers write beside the sources: the example's folder stays as it is. */
function copySources(language: string, dir: string): void {
  for (const file of readdirSync(join(consumers, language)))
    copyFileSync(join(consumers, language, file), join(dir, file));
}

function buildGo(dir: string): string[] {
  copySources('go', dir);
  // Kept from run to run: compiling Go's own packages takes a minute.
  const env = { GOCACHE: join(cacheDir, 'go-examples'), GOPROXY: 'off', GOFLAGS: '-mod=mod', HOME: dir };
  run(tool('go'), ['vet', '.'], dir, env);
  run(tool('go'), ['build', '-o', 'reader', '.'], dir, env);
  return [join(dir, 'reader')];
}

function buildC(dir: string): string[] {
  const root = locateReaderLibraries(cacheDir);
  const flags = ['-Wall', '-Wextra', '-Werror', '-fsanitize=address,undefined', `-I${root}/usr/include`];
  const library = readdirSync(join(root, 'usr/lib')).map((machine) => join(root, 'usr/lib', machine, 'libjansson.a'));
  run('gcc', [...flags, '-o', 'reader', join(consumers, 'c/read-metadata.c'), ...library], dir);
  return [join(dir, 'reader')];
}

function buildRust(dir: string): string[] {
  copySources('rust', dir);
  const crates = join(locateReaderLibraries(cacheDir), 'usr/share/cargo/registry');
  const source = [
    '--config',
    'source.crates-io.replace-with="debian"',
    '--config',
    `source.debian.directory="${crates}"`,
  ];
  const target = join(cacheDir, 'rust-examples');
  mkdirSync(target, { recursive: true });
  run('cargo', ['build', '--offline', ...source], dir, { CARGO_TARGET_DIR: target, RUSTFLAGS: '-Dwarnings' });
  copyFileSync(join(target, 'debug/read-metadata'), join(dir, 'reader'));
  return [join(dir, 'reader')];
}

function buildJava(dir: string): string[] {
  const gson = join(locateReaderLibraries(cacheDir), 'usr/share/java/gson.jar');
  run('javac', ['-Xlint:all', '-Werror', '-cp', gson, '-d', dir, join(consumers, 'java/ReadMetadata.java')], dir);
  return ['java', '-cp', `${dir}:${gson}`, 'ReadMetadata'];
}

export const readerLanguages: ReaderLanguage[] = [
  { name: 'Python', needs: [], build: () => [tool('python3'), join(consumers, 'python/read_metadata.py')] },
  { name: 'Go', needs: [], build: buildGo },
  { name: 'C', needs: ['gcc'], build: buildC },
  { name: 'Rust', needs: ['cargo'], build: buildRust },
  { name: 'Java', needs: ['javac', 'java'], build: buildJava },
  {
    name: 'shell',
    needs: [],
    build: () => [
      'env',
      `PATH=${join(tool('jq'), '..')}:${process.env.PATH}`,
      'sh',
      join(consumers, 'shell/read-metadata.sh'),
    ],
  },
];

/** The programs that this machine lacks for a language. */
export function findMissing({ needs }: ReaderLanguage): string[] {
  return needs.filter((name) => findFolderWith(pathFolders(process.env.PATH), [name]) === undefined);
}
