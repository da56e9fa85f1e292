import { chmodSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type PackageSet, packageSetFiles } from '../../../scripts/packages/package-root.ts';

/** Podman, with everything but the C library of the machine. */
export const podmanPackages: PackageSet = {
  suite: 'bookworm',
  packages: ['podman', 'conmon', 'netavark', 'aardvark-dns', 'iptables', 'runc', 'catatonit'],
  without: [
    'adduser',
    'dbus',
    'debconf',
    'dpkg',
    'gcc-12-base',
    'gnupg',
    'golang-github-containers-common',
    'init-system-helpers',
    'libc6',
    'libgcc-s1',
    'passwd',
    'perl-base',
    'systemd',
    'tar',
  ],
};

export interface PodmanFolders {
  /** Made by `unpackPackageSet` of `podmanPackages`. */
  packages: string;
  /** For its configuration and everything that ends with the machine. */
  state: string;
  /** For its containers and images. */
  store: string;
  /** Stores with more images. */
  imageStores: string[];
}

/** Number of CAP_SYS_RESOURCE. Source: capabilities(7), linux/capability.h. */
const sysResource = 24n;

/**
 * Sets up a podman that uses no configuration of the machine. For a separate node (scripts/in-node.sh).
 * @returns a folder for PATH with `podman`
 */
export function setUpPodman({ packages, state, store, imageStores }: PodmanFolders): string {
  const root = join(packages, packageSetFiles.root);
  const [bin, config, home] = ['bin', 'config', 'home'].map((name) => join(state, name)) as [string, string, string];
  for (const folder of [bin, config, join(home, '.config/containers')]) mkdirSync(folder, { recursive: true });
  const files = {
    CONTAINERS_CONF: containersConf(root, state, provideRuntime(root, bin)),
    CONTAINERS_STORAGE_CONF: storageConf(state, store, imageStores),
    CONTAINERS_REGISTRIES_CONF: '',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(config, name), text);
  writeFileSync(join(home, '.config/containers/policy.json'), '{"default": [{"type": "insecureAcceptAnything"}]}');
  // Links that Debian's scripts make; netavark looks for the names.
  const tables = join(state, 'tables');
  mkdirSync(tables);
  for (const name of ['iptables', 'ip6tables']) {
    symlinkSync(join(root, 'usr/sbin/xtables-nft-multi'), join(tables, name));
  }
  const libraryFolder = readdirSync(join(root, 'usr/lib')).find((name) => name.endsWith('-linux-gnu')) ?? '';
  const libraries = ['lib', 'usr/lib'].map((folder) => join(root, folder, libraryFolder));
  const env = {
    ...Object.fromEntries(Object.keys(files).map((name) => [name, join(config, name)])),
    HOME: home,
    LD_LIBRARY_PATH: libraries.join(':'),
    XTABLES_LIBDIR: join(libraries[1]!, 'xtables'),
  };
  const settings = Object.entries(env).map(([name, value]) => `${name}='${value}'`);
  const script = [
    `export ${settings.join(' ')} PATH='${tables}':"$PATH"`,
    // scripts/in-node.sh removes what is left there. No setting of podman names a cgroup for all containers.
    'if [ "$1" = run ]; then shift; set -- run --cgroup-parent "$NETDRA_CGROUP_PARENT/podman" "$@"; fi',
    `exec '${root}/usr/bin/podman' "$@"`,
  ];
  writeScript(join(bin, 'podman'), script.join('\n'));
  return bin;
}

/** @returns runc, or a program that leaves out what this machine does not permit */
function provideRuntime(root: string, bin: string): string {
  const runc = join(root, 'usr/sbin/runc');
  const [, bounding = '0'] = /^CapBnd:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
  if ((BigInt(`0x${bounding}`) >> sysResource) & 1n) return runc;
  const script = fileURLToPath(new URL('oci-runtime.ts', import.meta.url));
  const path = join(bin, 'oci-runtime');
  writeScript(path, `exec '${process.execPath}' --no-warnings '${script}' '${runc}' "$@"`);
  return path;
}

function writeScript(path: string, text: string): void {
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
}

/** Source: containers.conf(5). */
function containersConf(root: string, state: string, runtime: string): string {
  return `[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
conmon_path = ["${root}/usr/bin/conmon"]
helper_binaries_dir = ["${root}/usr/lib/podman"]
tmp_dir = "${state}/libpod"
runtime = "netdra"

[engine.runtimes]
netdra = ["${runtime}"]

[network]
network_backend = "netavark"
network_config_dir = "${state}/networks"
`;
}

/** Source: containers-storage.conf(5). */
function storageConf(state: string, store: string, imageStores: string[]): string {
  return `[storage]
driver = "overlay"
runroot = "${state}/storage"
graphroot = "${store}"

[storage.options]
additionalimagestores = ${JSON.stringify(imageStores)}
`;
}
