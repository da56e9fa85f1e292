import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fetchDebianPackages, PackageError, packageFolder } from './debian-packages.ts';
import { findFolderWith, pathFolders } from './host-programs.ts';
import { run } from './run.ts';

const suite = 'bookworm';

/** Programs that most machines have, and where their package has them. */
const programs = {
  ip: { package: 'iproute2', path: 'bin/ip' },
  tmux: { package: 'tmux', path: 'usr/bin/tmux' },
};

/** The package of each library that these are linked with. */
const libraryPackages: Record<string, string> = {
  'libbpf.so.1': 'libbpf1',
  'libbsd.so.0': 'libbsd0',
  'libcap.so.2': 'libcap2',
  'libelf.so.1': 'libelf1',
  'libevent_core-2.1.so.7': 'libevent-core-2.1-7',
  'libmd.so.0': 'libmd0',
  'libmnl.so.0': 'libmnl0',
  'libtinfo.so.6': 'libtinfo6',
  'libutempter.so.0': 'libutempter0',
  'libz.so.1': 'zlib1g',
};

/**
 * Provides a program. `ip` prints JSON.
 * @returns the folder that has it: the machine's, or one of the cache
 * @throws PackageError
 */
export function ensureProgram(
  name: keyof typeof programs,
  cacheDir: string,
  env: NodeJS.ProcessEnv,
  log: (line: string) => void,
): string {
  const binDir = join(cacheDir, 'debian', 'bin');
  const found = findFolderWith(pathFolders(env.PATH), [name]);
  if (found !== undefined) return found;
  const source = { name: programs[name].package, suite };
  fetchDebianPackages(cacheDir, [source], log);
  const program = join(packageFolder(cacheDir, source), programs[name].path);
  writeWrapper(join(binDir, name), program, fetchLibraries(cacheDir, program, source.name, log));
  return binDir;
}

/** Returns whether {@link ensureProgram} fetches nothing. */
export function hasProgram(name: keyof typeof programs, cacheDir: string, env: NodeJS.ProcessEnv): boolean {
  return findFolderWith([...pathFolders(env.PATH), join(cacheDir, 'debian', 'bin')], [name]) !== undefined;
}

/** Fetches libraries that `ldd` does not find, until it finds all. @returns the folders of the libraries */
function fetchLibraries(cacheDir: string, program: string, owner: string, log: (line: string) => void): string[] {
  const fetched = new Set<string>();
  for (;;) {
    const folders = [...fetched].flatMap((name) => libraryFolders(packageFolder(cacheDir, { name, suite })));
    const missing = parseMissingLibraries(run('ldd', [program], { env: { LD_LIBRARY_PATH: folders.join(':') } }));
    if (missing.length === 0) return folders;
    const names = missing.map((library) => libraryPackages[library]);
    if (names.includes(undefined) || names.every((name) => fetched.has(name ?? ''))) {
      const needed = `${program} needs ${missing.join(', ')}, which this machine does not have`;
      throw new PackageError('library-missing', needed, { hint: `install ${owner}` });
    }
    for (const name of names) fetched.add(name!);
    fetchDebianPackages(
      cacheDir,
      [...fetched].map((name) => ({ name, suite })),
      log,
    );
  }
}

/** The libraries that `ldd` has no path for: lines like `libelf.so.1 => not found`. */
export function parseMissingLibraries(text: string): string[] {
  return [...text.matchAll(/^\s*(\S+) => not found$/gm)].map((match) => match[1]!);
}

/** Debian has libraries in `lib/<machine>` and `usr/lib/<machine>`. */
function libraryFolders(root: string): string[] {
  return ['lib', 'usr/lib']
    .map((folder) => join(root, folder))
    .filter(existsSync)
    .flatMap((folder) =>
      readdirSync(folder, { withFileTypes: true })
        .filter((entry) => entry.isDirectory() && entry.name.includes('-linux-'))
        .map((entry) => join(folder, entry.name)),
    );
}

/**
 * Writes a script that starts the program with its libraries, so that they affect nothing else. It finds both by their way from
 * its own folder: a cache can be copied to another user. Replaces a script of an earlier version.
 */
export function writeWrapper(path: string, program: string, libraries: string[]): void {
  const folder = dirname(path);
  mkdirSync(folder, { recursive: true });
  const fromHere = (target: string) => `$here/${relative(folder, target)}`;
  const start = `LD_LIBRARY_PATH="${libraries.map(fromHere).join(':')}" exec "${fromHere(program)}" "$@"`;
  const text = `#!/bin/sh\nhere=\${0%/*}\n${start}\n`;
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return;
  writeFileSync(`${path}.new`, text);
  chmodSync(`${path}.new`, 0o755);
  renameSync(`${path}.new`, path);
}
