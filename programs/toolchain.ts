import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type DebianPackage, fetchDebianPackages, packageFolder } from '../scripts/packages/debian-packages.ts';
import { findFolderWith, pathFolders } from '../scripts/packages/host-programs.ts';
import { NetdraError } from '../src/lib/errors.ts';

/** A compiler that is needed and not there. */
export class ToolchainError extends NetdraError {}

const muslPackage: DebianPackage = { name: 'musl-dev', suite: 'bookworm' };
/** Name of the machine in Debian's paths. */
const machines: Partial<Record<NodeJS.Architecture, string>> = {
  x64: 'x86_64-linux-musl',
  arm64: 'aarch64-linux-musl',
};

/**
 * The C compiler of this machine, for a build with its own C library.
 * @throws ToolchainError `no-compiler`
 */
export function findCompiler(env: NodeJS.ProcessEnv): string {
  const found = ['gcc', 'cc', 'clang'].find((name) => findFolderWith(pathFolders(env.PATH), [name]) !== undefined);
  if (found !== undefined) return found;
  throw new ToolchainError('no-compiler', 'no C compiler in PATH (gcc, cc or clang)', { hint: 'install gcc' });
}

/**
 * The compiler that makes the smallest program: gcc with musl instead of the machine's C library. `musl-gcc` if the
 * machine has it, else the library of Debian's package, unpacked into the cache.
 * @returns a command line, as make takes it for `CC`
 * @throws ToolchainError, PackageError
 */
export function findMuslCompiler(cacheDir: string, env: NodeJS.ProcessEnv, log: (line: string) => void): string {
  if (findFolderWith(pathFolders(env.PATH), ['musl-gcc']) !== undefined) return 'musl-gcc';
  if (findFolderWith(pathFolders(env.PATH), ['gcc']) === undefined) {
    throw new ToolchainError('no-compiler', 'no gcc in PATH', { hint: 'install gcc, or musl-gcc' });
  }
  fetchDebianPackages(cacheDir, [muslPackage], log);
  return `gcc -specs=${writeSpecs(packageFolder(cacheDir, muslPackage))}`;
}

/** Returns whether {@link findMuslCompiler} fetches nothing: the machine or the cache has musl, or there is no gcc for it. */
export function hasMusl(cacheDir: string, env: NodeJS.ProcessEnv): boolean {
  const folders = pathFolders(env.PATH);
  if (findFolderWith(folders, ['musl-gcc']) !== undefined || findFolderWith(folders, ['gcc']) === undefined)
    return true;
  return existsSync(packageFolder(cacheDir, muslPackage));
}

/** The package's specs say where it would be installed: a copy says where it is. */
function writeSpecs(folder: string): string {
  const machine = machines[process.arch];
  if (machine === undefined || /\s/.test(folder)) {
    throw new ToolchainError('no-compiler', `musl cannot be used on ${process.arch} from ${folder}`, {
      hint: 'install musl-tools',
    });
  }
  const specs = readFileSync(join(folder, 'usr/lib', machine, 'musl-gcc.specs'), 'utf8');
  const moved = specs.replace(/\/usr\/(include|lib)\//g, (path) => join(folder, path));
  const path = join(folder, 'musl-gcc.specs');
  // Written once: another build may be reading it.
  if (!existsSync(path) || readFileSync(path, 'utf8') !== moved) writeFileSync(path, moved);
  return path;
}
