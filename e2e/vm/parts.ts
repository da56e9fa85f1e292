import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CacheEntry, type CacheLock, takeCacheEntries } from '../../scripts/packages/cache.ts';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../scripts/packages/package-root.ts';
import { buildGuestImage, guestPackages, imageFiles } from './image/guest-image.ts';
import { buildModulesDisk, modulesDiskFile } from './image/modules-disk.ts';
import type { MachineOptions } from './machine.ts';

const qemuPackages: PackageSet = { suite: 'trixie', packages: ['qemu-system-x86'], without: ['ipxe-qemu', 'passwd'] };

export interface PartsOptions {
  repository: string;
  cacheDir: string;
  log: (line: string) => void;
}

/** The parts of a machine, in the cache. */
export interface MachineParts {
  files: Omit<MachineOptions, 'repository' | 'runDir'>;
  /** Prevents the files from being replaced until it is disposed. */
  lock: CacheLock;
}

/**
 * Provides QEMU, the guest's image and a disk with `node_modules`. Existing parts are used unchanged: newer versions
 * of packages are looked for only when the inputs changed or the folder is gone.
 * @throws PackageError, CommandError
 */
export function takeMachineParts(options: PartsOptions): MachineParts {
  const { folders, lock } = takeCacheEntries(options.cacheDir, cacheEntries(options));
  const [qemu = '', image = '', modules = ''] = folders;
  const files = {
    qemuRoot: join(qemu, packageSetFiles.root),
    kernel: join(image, imageFiles.kernel),
    firstRoot: join(image, imageFiles.firstRoot),
    disk: join(image, imageFiles.disk),
    modulesDisk: join(modules, modulesDiskFile),
  };
  return { files, lock };
}

function cacheEntries({ repository, log }: PartsOptions): CacheEntry[] {
  const firstInit = readSource('guest/first-root.sh');
  const unpacking = ['../../scripts/packages/package-root.ts', '../../scripts/packages/dependencies.ts'].map(
    readSource,
  );
  const imaging = ['guest-image.ts', 'cpio.ts', 'ext4.ts', 'kernel-modules.ts'].map((name) =>
    readSource(`image/${name}`),
  );
  const nodeModules = join(repository, 'node_modules');
  return [
    {
      name: 'qemu',
      inputs: [qemuPackages, unpacking],
      build: (dir) => {
        log(`fetching QEMU of Debian ${qemuPackages.suite} ...`);
        unpackPackageSet(dir, qemuPackages, '/etc/apt');
      },
    },
    {
      name: 'image',
      inputs: [guestPackages, unpacking, imaging, firstInit],
      build: (dir) => {
        log(`making the guest's image from packages of Debian ${guestPackages.suite} ...`);
        buildGuestImage(dir, firstInit, '/etc/apt');
      },
    },
    {
      name: 'modules',
      // npm's own record of the installed packages.
      inputs: [readFileSync(join(nodeModules, '.package-lock.json'), 'utf8'), readSource('image/modules-disk.ts')],
      build: (dir) => {
        log('making a disk with node_modules ...');
        buildModulesDisk(dir, nodeModules);
      },
    },
  ];
}

function readSource(path: string): string {
  return readFileSync(fileURLToPath(new URL(path, import.meta.url)), 'utf8');
}
