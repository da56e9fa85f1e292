import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../../scripts/packages/package-root.ts';
import { run } from '../../../scripts/packages/run.ts';
import type { TarEntry } from '../../node/tar.ts';
import { encodeCpio } from './cpio.ts';
import { writeExt4Image } from './ext4.ts';
import { moduleFiles, parseModulesDep } from './kernel-modules.ts';
import { packagedProgram } from './package-programs.ts';

/** What runs in the guest. */
export const guestPackages: PackageSet = {
  suite: 'forky',
  packages: [
    'base-files',
    'bash',
    'coreutils',
    'findutils',
    'gawk',
    'grep',
    'kmod',
    'mount',
    'sed',
    'util-linux',
    'xz-utils',
    'linux-image-amd64',
    'busybox-static',
    'iproute2',
    'iputils-ping',
    'pciutils',
    'procps',
    'libstdc++6',
    'containerd',
    'containernetworking-plugins',
    'runc',
    'dpdk-dev',
    'librte-net-e1000-*',
    'librte-mempool-ring*',
  ],
  without: [
    // What is for building programs, and for packages' scripts, which do not run here.
    'libdpdk-dev',
    'python3',
    'debconf',
    'adduser',
    'passwd',
    // The guest has an init of its own and no first root made by Debian's tools.
    'systemd',
    'udev',
    'dracut',
    'initramfs-tools',
    'linux-base',
    'linux-base-amd64',
    'rdma-core',
    'libpam-modules',
    'libpam-runtime',
    'libpam0g',
  ],
};

/** What the kernel needs to get at its root and at the share of the run. */
const firstModules = ['virtio_blk', 'ext4', 'overlay', '9p', '9pnet_virtio'];
/** What can be loaded later; the other modules of the kernel are not in the image. */
const laterModules = [
  'virtio_net',
  'virtio_rng',
  'igb',
  'igbvf',
  'vfio_pci',
  'vfio_iommu_type1',
  'vhost_net',
  'bridge',
  'br_netfilter',
  'veth',
  'tun',
  'dummy',
  'macvlan',
  'ipvlan',
  '8021q',
  'vrf',
  'bonding',
];

const notNeeded = ['doc', 'info', 'lintian', 'locale', 'man'].map((name) => `usr/share/${name}`);

/** The files of an image, in its folder. */
export const imageFiles = { kernel: 'vmlinuz', firstRoot: 'first-root.cpio', disk: 'disk.img' };

/**
 * Makes kernel, first root and disk of the guest from Debian packages.
 * @param dir an empty folder
 * @param firstInit text of the script that the kernel starts first
 * @throws PackageError, CommandError
 */
export function buildGuestImage(dir: string, firstInit: string, aptDir: string): void {
  unpackPackageSet(dir, guestPackages, aptDir);
  const root = join(dir, packageSetFiles.root);
  for (const path of notNeeded) rmSync(join(root, path), { recursive: true, force: true });
  const kernelDir = join(root, 'usr/lib/modules', readdirSync(join(root, 'usr/lib/modules'))[0] ?? '');
  const modules = trimModules(root, kernelDir);
  renameSync(join(kernelDir, 'vmlinuz'), join(dir, imageFiles.kernel));
  writeFileSync(join(dir, imageFiles.firstRoot), encodeCpio(firstRootFiles(root, modules, firstInit)));
  writeExt4Image(join(dir, imageFiles.disk), root);
  rmSync(root, { recursive: true });
}

/**
 * Removes the modules that no test loads, unpacks the others, since the emulated processor takes long for that, and
 * makes the tables for modprobe.
 * @returns paths of those for the first root, in the order in which they are to be loaded
 */
function trimModules(root: string, kernelDir: string): string[] {
  const version = basename(kernelDir);
  const runPackaged = (path: string, name: string, args: string[]) => {
    const [program, ...first] = packagedProgram(root, path, name);
    run(program, [...first, ...args]);
  };
  runPackaged('usr/bin/kmod', 'depmod', ['-b', root, version]);
  const dependencies = parseModulesDep(readFileSync(join(kernelDir, 'modules.dep'), 'utf8'));
  const needed = moduleFiles(dependencies, [...firstModules, ...laterModules]);
  for (const path of dependencies.keys()) if (!needed.includes(path)) rmSync(join(kernelDir, path));
  const packed = needed.filter((path) => path.endsWith('.xz'));
  if (packed.length > 0) runPackaged('usr/bin/xz', 'xz', ['-d', ...packed.map((path) => join(kernelDir, path))]);
  runPackaged('usr/bin/kmod', 'depmod', ['-b', root, version]);
  return moduleFiles(dependencies, firstModules).map((path) => join(kernelDir, path.replace(/\.xz$/, '')));
}

function firstRootFiles(root: string, modules: string[], init: string): TarEntry[] {
  return [
    ...['bin', 'dev', 'modules', 'proc', 'root', 'sys'].map((path): TarEntry => ({ type: 'directory', path })),
    { type: 'file', path: 'init', mode: 0o755, data: Buffer.from(init) },
    { type: 'file', path: 'bin/busybox', mode: 0o755, data: readFileSync(join(root, 'usr/bin/busybox')) },
    ...modules.map((path): TarEntry => ({ type: 'file', path: `modules/${basename(path)}`, data: readFileSync(path) })),
    {
      type: 'file',
      path: 'modules/order',
      data: Buffer.from(modules.map((path) => `${basename(path)}\n`).join('')),
    },
  ];
}
