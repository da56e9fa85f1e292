import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type CacheEntry, cacheEntryFolder, takeCacheEntries } from '../../scripts/packages/cache.ts';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../scripts/packages/package-root.ts';

/** Go of Debian, without what only programs with C in them need. */
const packages: PackageSet = {
  suite: 'trixie',
  packages: ['golang-1.24-go', 'golang-1.24-src'],
  without: ['libc6', 'perl'],
};

/** A Go command, and variables that it needs. */
export interface GoToolchain {
  program: string;
  env: Record<string, string>;
}

/**
 * The machine's Go, or Debian's, unpacked into the cache. Either fetches the version that a go.mod asks for from the Go module
 * proxy, unless GOTOOLCHAIN=local forbids it (https://go.dev/doc/toolchain).
 * @throws PackageError, CommandError
 */
export function findGo(cacheDir: string, log: (line: string) => void): GoToolchain {
  if (isInPath()) return { program: 'go', env: {} };
  const { folders, lock } = takeCacheEntries(toolchainFolder(cacheDir), [toolchainEntry(log)]);
  lock[Symbol.dispose]();
  const root = join(folders[0]!, packageSetFiles.root, 'usr/lib/go-1.24');
  return { program: join(root, 'bin/go'), env: { GOROOT: root, GOTOOLCHAIN: 'auto' } };
}

/** Returns whether {@link findGo} fetches no Debian packages. */
export function hasGo(cacheDir: string): boolean {
  return (
    isInPath() ||
    existsSync(
      cacheEntryFolder(
        toolchainFolder(cacheDir),
        toolchainEntry(() => undefined),
      ),
    )
  );
}

function isInPath(): boolean {
  return spawnSync('go', ['version']).status === 0;
}

function toolchainFolder(cacheDir: string): string {
  return join(cacheDir, 'go-toolchain');
}

function toolchainEntry(log: (line: string) => void): CacheEntry {
  return {
    name: 'toolchain',
    inputs: packages,
    build: (dir) => {
      log(`no Go in PATH: fetching Debian packages: ${packages.packages.join(', ')} (${packages.suite})`);
      unpackPackageSet(dir, packages, '/etc/apt');
    },
  };
}
