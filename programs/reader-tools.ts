import { chmodSync, existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CacheEntry, cacheEntryFolder, takeCacheEntries } from '../scripts/packages/cache.ts';
import { findFolderWith, pathFolders } from '../scripts/packages/host-programs.ts';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../scripts/packages/package-root.ts';
import { findMuslCompiler, ToolchainError } from './toolchain.ts';

/** What the examples' readers are written for. */
export const readerTools = ['python3', 'jq', 'go'] as const;
export type ReaderTool = (typeof readerTools)[number];

interface ToolPackages extends PackageSet {
  /** Starts the program, as shell commands that end in its name. `$root` is the folder with the packages' files. */
  start: string;
}

/** The packages' own loader finds their own C library: the machine's may be an older one. */
const loader = '"$root"/lib64/ld-linux-*.so.2 --library-path "$libraries"';
const suite = 'bookworm';
const packages: Record<ReaderTool, ToolPackages> = {
  python3: {
    suite,
    packages: ['python3.11-minimal', 'libpython3.11-stdlib'],
    without: ['debconf', 'media-types'],
    start: `export PYTHONHOME="$root/usr"; exec ${loader} "$root/usr/bin/python3.11"`,
  },
  jq: { suite, packages: ['jq'], without: [], start: `exec ${loader} "$root/usr/bin/jq"` },
  go: {
    suite,
    packages: ['golang-1.19-go', 'golang-1.19-src'],
    // Only for programs with C in them.
    without: ['libc6', 'perl'],
    start: 'export GOROOT="$root/usr/lib/go-1.19"; exec "$GOROOT/bin/go"',
  },
};

/** What the readers in C, Java and Rust parse JSON with: a C library, a jar, and the sources of crates. */
const libraries: PackageSet = {
  suite,
  packages: ['libjansson-dev', 'libgoogle-gson-java', 'librust-serde-json-dev'],
  // For features of serde_json that the reader does not use.
  without: ['libc6', 'librust-indexmap-dev'],
};

const librariesEntry = (aptDir: string, log: (line: string) => void): CacheEntry => ({
  name: 'reader-libraries',
  inputs: libraries,
  build: (dir) => fetchSet(dir, libraries, aptDir, log),
});

function fetchSet(dir: string, set: PackageSet, aptDir: string, log: (line: string) => void): void {
  log(`fetching Debian packages: ${set.packages.join(', ')} (${set.suite})`);
  unpackPackageSet(dir, set, aptDir);
}

function cacheEntry(tool: ReaderTool, aptDir: string, log: (line: string) => void): CacheEntry {
  const set = packages[tool];
  return {
    name: `reader-${tool}`,
    inputs: set,
    build: (dir) => {
      fetchSet(dir, set, aptDir, log);
      writeWrapper(join(dir, tool), set.start, libraryFolders(join(dir, packageSetFiles.root)));
    },
  };
}

const hint = 'run `node scripts/fetch-program-tools.ts` first';

function setsFolder(cacheDir: string): string {
  return join(cacheDir, 'consumer');
}

/**
 * Makes sure of everything that the tests of the consumer side need: musl, the readers' languages and libraries. Languages
 * that the machine has are used, the others are unpacked into the cache; Go is the large one, some 80 MB. Java and Rust are not fetched.
 * @throws ToolchainError, PackageError
 */
export function fetchConsumerTools(cacheDir: string, env: NodeJS.ProcessEnv, log: (line: string) => void): void {
  findMuslCompiler(cacheDir, env, log);
  const missing = readerTools.filter((tool) => findFolderWith(pathFolders(env.PATH), [tool]) === undefined);
  const entries = missing.map((tool) => cacheEntry(tool, '/etc/apt', log));
  takeCacheEntries(setsFolder(cacheDir), [...entries, librariesEntry('/etc/apt', log)]).lock[Symbol.dispose]();
}

/**
 * The program, from the machine or the cache.
 * @throws ToolchainError `tool-missing`
 */
export function locateReaderTool(tool: ReaderTool, cacheDir: string, env: NodeJS.ProcessEnv): string {
  const onMachine = findFolderWith(pathFolders(env.PATH), [tool]);
  if (onMachine !== undefined) return join(onMachine, tool);
  const folder = cacheEntryFolder(
    setsFolder(cacheDir),
    cacheEntry(tool, '', () => undefined),
  );
  if (existsSync(join(folder, tool))) return join(folder, tool);
  throw new ToolchainError('tool-missing', `no ${tool} on this machine`, { hint });
}

/**
 * Folder with the readers' libraries, as Debian lays them out below `/`.
 * @throws ToolchainError `tool-missing`
 */
export function locateReaderLibraries(cacheDir: string): string {
  const folder = join(
    cacheEntryFolder(
      setsFolder(cacheDir),
      librariesEntry('', () => undefined),
    ),
    packageSetFiles.root,
  );
  if (existsSync(folder)) return folder;
  throw new ToolchainError('tool-missing', 'no libraries for the example readers in the cache', { hint });
}

/** Debian has libraries in `lib/<machine>` and `usr/lib/<machine>`. */
function libraryFolders(root: string): string[] {
  return ['lib', 'usr/lib']
    .map((folder) => join(root, folder))
    .filter(existsSync)
    .flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)))
    .filter((folder) => /-linux-gnu$/.test(folder))
    .map((folder) => folder.slice(root.length));
}

/** It finds its files from where it lies: the folder is renamed when it is complete. */
function writeWrapper(path: string, start: string, libraries: string[]): void {
  const script = `#!/bin/sh
root=$(cd "$(dirname "$0")" && pwd)/${packageSetFiles.root}
libraries=${libraries.map((folder) => `"$root"${folder}`).join(':')}
${start} "$@"
`;
  writeFileSync(path, script);
  chmodSync(path, 0o755);
}
