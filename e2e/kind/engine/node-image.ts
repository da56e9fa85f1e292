import { createHash } from 'node:crypto';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CacheEntry } from '../../../scripts/packages/cache.ts';
import { type PackageSet, packageSetFiles } from '../../../scripts/packages/package-root.ts';
import { run } from '../../../scripts/packages/run.ts';
import type { NodeTools } from '../../node/tools.ts';
import { type KubernetesFolders, writeControlPlaneImages } from './control-plane-images.ts';
import { setUpPodman } from './podman.ts';

/** A node's root file system; the packages' scripts do not run in it. */
export const nodePackages: PackageSet = {
  suite: 'bookworm',
  packages: [
    'base-files',
    'base-passwd',
    'bash',
    'coreutils',
    'dash',
    'findutils',
    'grep',
    'gzip',
    'hostname',
    'iproute2',
    'iptables',
    'libseccomp2',
    'mount',
    'netbase',
    'procps',
    'runc',
    'sed',
    'systemd',
    'systemd-sysv',
    'tar',
    'util-linux',
  ],
  without: ['adduser', 'debconf', 'dpkg', 'gcc-12-base', 'mawk', 'passwd', 'perl-base', 'usrmerge'],
};

export interface NodeImageParts {
  /** Made by `unpackPackageSet` of `nodePackages`. */
  packages: string;
  /** Made by `unpackPackageSet` of `podmanPackages`. */
  podmanPackages: string;
  kubernetes: KubernetesFolders;
  /** Of Kubernetes, e.g. `v1.37.2`. */
  version: string;
  tools: NodeTools;
}

/** What the image has beyond packages and programs: configuration of systemd, containerd and kubelet, and kind's files. */
const nodeFiles = fileURLToPath(new URL('node', import.meta.url));
const pluginNames = ['bridge', 'host-local', 'loopback'];
/** Units that wait for devices or users. */
const masked = ['getty.target', 'systemd-logind.service', 'systemd-udevd.service', 'systemd-udev-trigger.service'];

export const nodeImageName = (version: string) => `localhost/netdra/node:${version}`;

/** A store of podman with the image, for {@link setUpPodman}. Building it needs a separate node (scripts/in-node.sh). */
export function nodeImageEntry(parts: NodeImageParts): CacheEntry {
  const { packages, kubernetes, version, tools } = parts;
  const programs = Object.values(kubernetes).map((folder) => basename(folder));
  const list = readFileSync(join(packages, packageSetFiles.list), 'utf8');
  return {
    name: 'node-image',
    inputs: { list, programs, version, containerd: tools.containerdDirs['2.1'], files: hashFiles() },
    build: (dir) => {
      const root = join(dir, 'root');
      layOutNode(root, parts);
      const bin = setUpPodman({
        packages: parts.podmanPackages,
        state: join(dir, 'podman'),
        store: dir,
        imageStores: [],
      });
      const change = 'ENTRYPOINT ["/sbin/init"]';
      // A node ends by the signal that systemd shuts down at.
      const command = `tar -C "$1" -c . | "$2" import --change 'STOPSIGNAL SIGRTMIN+3' --change "$3" - "$4"`;
      run('bash', [
        '-ec',
        `set -o pipefail; ${command}`,
        'bash',
        root,
        join(bin, 'podman'),
        change,
        nodeImageName(version),
      ]);
      for (const folder of ['root', 'podman', 'libpod']) rmSync(join(dir, folder), { recursive: true, force: true });
    },
  };
}

function hashFiles(): string {
  const hash = createHash('sha256');
  const sources = ['node-image.ts', 'control-plane-images.ts'].map((name) => join(nodeFiles, '..', name));
  const files = readdirSync(nodeFiles, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  for (const path of [...sources, ...files.sort()])
    hash.update(`${path.slice(nodeFiles.length)}\0`).update(readFileSync(path));
  return hash.digest('hex');
}

function layOutNode(root: string, { packages, kubernetes, version, tools }: NodeImageParts): void {
  cpSync(join(packages, packageSetFiles.root), root, { recursive: true, verbatimSymlinks: true });
  const at = (...path: string[]) => join(root, ...path);
  cpSync(nodeFiles, root, { recursive: true });
  writeControlPlaneImages(at('kind/images'), kubernetes, { version, root, busybox: tools.busybox });
  writeFileSync(at('kind/version'), version);
  // What the packages' scripts would do.
  for (const name of ['passwd', 'group']) copyFileSync(at('usr/share/base-passwd', `${name}.master`), at('etc', name));
  for (const path of ['etc/machine-id', 'etc/hosts']) writeFileSync(at(path), '');
  for (const path of ['usr/share/doc', 'usr/share/man', 'usr/share/locale', 'var/run', 'var/lock'])
    rmSync(at(path), { recursive: true, force: true });
  symlinkSync('/run', at('var/run'));
  symlinkSync('/run/lock', at('var/lock'));
  for (const unit of masked) symlinkSync('/dev/null', at('etc/systemd/system', unit));
  const wanted = at('etc/systemd/system/multi-user.target.wants');
  mkdirSync(wanted, { recursive: true });
  for (const unit of ['containerd.service', 'kubelet.service']) symlinkSync(`../${unit}`, join(wanted, unit));
  mkdirSync(at('lib/modules'), { recursive: true });
  mkdirSync(at('opt/cni/bin'), { recursive: true });
  for (const name of pluginNames) copyFileSync(join(tools.cniBinDir, name), at('opt/cni/bin', name));
  const containerd = tools.containerdDirs['2.1'];
  const programs = [
    ...['containerd', 'ctr', 'containerd-shim-runc-v2'].map((name) => join(containerd, name)),
    ...['kubelet', 'kubectl'].map((name) => join(kubernetes.servers, name)),
    join(kubernetes.kubeadm, 'kubeadm'),
  ];
  for (const path of programs) copyFileSync(path, at('usr/local/bin', basename(path)));
}
