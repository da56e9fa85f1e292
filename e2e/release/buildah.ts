import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type PackageSet, packageSetFiles, unpackPackageSet } from '../../scripts/packages/package-root.ts';
import { run } from '../../scripts/packages/run.ts';

/** Packages for builds in a chroot: no container runtime, network plugins, user namespaces or signatures. */
export const buildahPackages: PackageSet = {
  suite: 'bookworm',
  packages: ['base-files', 'buildah'],
  without: ['containernetworking-plugins', 'debconf', 'gnupg', 'iptables', 'mawk', 'perl-base', 'uidmap'],
};

/** Paths of the machine's folders in buildah's root: its images, a scratch folder, the build context and the result. */
export const insideFolders = {
  store: '/build/store',
  work: '/build/work',
  context: '/build/context',
  out: '/build/out',
} as const;

export type BuildahMounts = Partial<Record<keyof typeof insideFolders, string>>;

const systemFolders = ['/proc', '/sys', '/dev'];
const networkFiles = ['/etc/resolv.conf', '/etc/hosts'];
const passedOn = ['HTTP_PROXY', 'HTTPS_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy'];

/**
 * `ROOT SOURCE TARGET [SOURCE TARGET ...] -- COMMAND`, in its own mount namespace. buildah makes its root private,
 * which requires that it is a mount.
 */
const enterRoot = `set -eu
root=$1
shift
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  mount --rbind "$1" "$root$2"
  shift 2
done
shift
exec chroot "$root" "$@"`;

/**
 * Unpacks buildah from Debian packages. It gets its own root file system and uses no libraries or settings of
 * the machine.
 * @param dir an empty folder
 * @throws PackageError, CommandError
 */
export function unpackBuildah(dir: string): void {
  unpackPackageSet(dir, buildahPackages, '/etc/apt');
  const root = join(dir, packageSetFiles.root);
  for (const path of [...systemFolders, ...Object.values(insideFolders)])
    mkdirSync(join(root, path), { recursive: true });
  for (const path of networkFiles) writeFileSync(join(root, path), '');
  writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
}

/**
 * Runs buildah as root in its own root file system and mount namespace, on the machine's network.
 * @param dir as made by `unpackBuildah`
 * @param mounts folders of the machine; `work` is needed, for temporary files
 * @throws CommandError
 */
export function runBuildah(dir: string, mounts: BuildahMounts & { work: string }, args: readonly string[]): void {
  const binds = [
    ...[...systemFolders, ...networkFiles].map((path) => [path, path]),
    ...Object.entries(mounts).map(([name, path]) => [path, insideFolders[name as keyof BuildahMounts]]),
  ];
  const env = {
    ...Object.fromEntries(passedOn.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : []))),
    PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: '/root',
    TMPDIR: insideFolders.work,
    BUILDAH_ISOLATION: 'chroot',
  };
  const command = ['sh', '-c', enterRoot, 'sh', join(dir, packageSetFiles.root), ...binds.flat(), '--', 'buildah'];
  run('unshare', ['--mount', '--propagation', 'private', ...command, ...args], {
    env,
    name: `buildah ${args.join(' ')}`,
    timeoutMs: 900_000,
  });
}
