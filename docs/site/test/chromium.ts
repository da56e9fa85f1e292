import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type CacheEntry, takeCacheEntries } from '../../../scripts/packages/cache.ts';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../../scripts/packages/package-root.ts';

/** Chromium without a screen, its libraries, and a font. The C library is the machine's: Debian 12's or newer. */
const set: PackageSet = {
  suite: 'bookworm',
  packages: ['chromium-headless-shell', 'fonts-dejavu-core', 'fontconfig-config'],
  without: ['libc6', 'debconf', 'x11-utils', 'xdg-utils', 'chromium-sandbox', 'lsb-base', 'sysvinit-utils'],
};

/** A program, and the variables that it needs. */
export interface Browser {
  executablePath: string;
  env: Record<string, string>;
}

/**
 * The browser, which is unpacked into the cache the first time; nothing is installed on the machine.
 * @throws PackageError
 */
export function ensureChromium(cacheDir: string, log: (line: string) => void): Browser {
  const entry: CacheEntry = {
    name: 'chromium',
    inputs: set,
    build: (dir) => {
      log(`fetching Debian packages: ${set.packages.join(', ')} (${set.suite})`);
      unpackPackageSet(dir, set, '/etc/apt');
    },
  };
  const { folders, lock } = takeCacheEntries(join(cacheDir, 'site'), [entry]);
  lock[Symbol.dispose]();
  const root = join(folders[0]!, packageSetFiles.root);
  const libraries = ['lib', 'usr/lib'].flatMap((folder) =>
    readdirSync(join(root, folder))
      .filter((name) => name.endsWith('-linux-gnu'))
      .flatMap((name) => [join(root, folder, name), join(root, folder, name, 'pulseaudio')]),
  );
  return {
    executablePath: join(root, 'usr/lib/chromium/chromium-headless-shell'),
    env: { LD_LIBRARY_PATH: libraries.join(':'), FONTCONFIG_SYSROOT: root },
  };
}

if (process.argv[1] === import.meta.filename) {
  ensureChromium(cacheFolder(process.env), (line) => console.error(`netdra: ${line}`));
}
