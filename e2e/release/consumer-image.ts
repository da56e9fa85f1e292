import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buildConsumer, programsFolder } from '../../programs/build.ts';
import { type CacheEntry, cacheEntryFolder, takeCacheEntries } from '../../scripts/packages/cache.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../scripts/packages/package-root.ts';
import { run } from '../../scripts/packages/run.ts';
import { NetdraError } from '../../src/lib/errors.ts';
import { encodeOciArchive } from '../node/oci-image.ts';
import { readTarEntries, type TarEntry } from '../node/tar.ts';
import { locateTools } from '../node/tools.ts';

/** Same content as e2e/kind/consumer.Dockerfile, with busybox instead of Debian's own commands. */
export const consumerImage = 'localhost/netdra/consumer:e2e';

const packages: PackageSet = {
  suite: 'bookworm',
  packages: ['dpdk-dev', 'librte-net-af-packet*', 'librte-net-e1000-*', 'librte-mempool-ring*', 'iproute2'],
  // Needed only to build programs and for packages' scripts, which do not run here.
  without: [
    'libdpdk-dev',
    'python3',
    'perl',
    'debconf',
    'adduser',
    'passwd',
    'libpam-modules',
    'libpam-runtime',
    'libpam0g',
    'rdma-core',
    'udev',
  ],
};
const notNeeded = ['etc', 'usr/share', 'usr/include', 'usr/lib/x86_64-linux-gnu/gconv', 'usr/bin/dpdk-test'];

function cacheEntry(log: (line: string) => void): CacheEntry {
  return {
    name: 'dpdk',
    inputs: [packages, notNeeded],
    build: (dir) => {
      log(`fetching Debian packages: ${packages.packages.join(', ')} (${packages.suite})`);
      unpackPackageSet(dir, packages, '/etc/apt');
      for (const path of notNeeded) rmSync(join(dir, packageSetFiles.root, path), { recursive: true, force: true });
    },
  };
}

const setsFolder = (cacheDir: string) => join(cacheDir, 'cluster');

/** Provides DPDK and iproute2, before tests run without a network. @throws PackageError */
export function fetchConsumerPackages(cacheDir: string, log: (line: string) => void): void {
  takeCacheEntries(setsFolder(cacheDir), [cacheEntry(log)]).lock[Symbol.dispose]();
}

/**
 * Writes the image of the test containers, as OCI archive.
 * @throws NetdraError `tool-missing`; ToolchainError, CommandError
 */
export function writeConsumerArchive(path: string, env = process.env): void {
  const cacheDir = cacheFolder(env);
  const root = join(
    cacheEntryFolder(
      setsFolder(cacheDir),
      cacheEntry(() => undefined),
    ),
    packageSetFiles.root,
  );
  if (!existsSync(root)) {
    throw new NetdraError('tool-missing', `no DPDK in ${root}`, {
      hint: 'run `node scripts/fetch-cluster-tools.ts` first',
    });
  }
  const tool = buildConsumer({ outDir: programsFolder(cacheDir, 'static'), cacheDir, env });
  const files = imageFiles(root, locateTools(env).busybox, tool);
  const searched = '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
  const archive = encodeOciArchive([{ name: consumerImage, files, env: [`PATH=${searched}`] }]);
  writeFileSync(path, archive, { mode: 0o600 });
}

/**
 * Imports that image into a container runtime.
 * @param dir for the archive, which is removed afterwards
 * @param provide takes the archive and the image's name
 * @throws as `writeConsumerArchive` and `provide`
 */
export async function provideConsumerImage(
  dir: string,
  provide: (archive: string, image: string) => Promise<void>,
): Promise<void> {
  const archive = join(dir, 'consumer.tar');
  writeConsumerArchive(archive);
  await provide(archive, consumerImage);
  rmSync(archive);
}

function imageFiles(root: string, busybox: string, tool: string): TarEntry[] {
  const program = (path: string, source: string): TarEntry => {
    return { type: 'file', path, mode: 0o755, data: readFileSync(source) };
  };
  const packaged = readTarEntries(root);
  const taken = new Set(packaged.map(({ path }) => path));
  const applets = run(busybox, ['--list'])
    .split('\n')
    .filter((name) => name !== '' && name !== 'busybox' && !taken.has(`bin/${name}`) && !taken.has(`sbin/${name}`));
  const folders = ['dev', 'etc', 'mnt', 'proc', 'root', 'run', 'sys', 'usr/local', 'usr/local/bin', 'var'];
  return [
    ...packaged,
    ...folders.map((path): TarEntry => ({ type: 'directory', path })),
    { type: 'directory', path: 'tmp', mode: 0o1777 },
    program('bin/busybox', busybox),
    ...applets.map((name): TarEntry => ({ type: 'symlink', path: `bin/${name}`, target: 'busybox' })),
    program('usr/local/bin/netdra-metadata', tool),
    { type: 'file', path: 'etc/passwd', data: Buffer.from('root:x:0:0:root:/root:/bin/sh\n') },
    { type: 'symlink', path: 'var/run', target: '/run' },
  ];
}
