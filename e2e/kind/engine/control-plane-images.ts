import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../../../scripts/packages/run.ts';
import { NetdraError } from '../../../src/lib/errors.ts';
import { makePauseArchive } from '../../node/images.ts';
import { encodeOciArchive } from '../../node/oci-image.ts';
import { readTarEntries, type TarEntry } from '../../node/tar.ts';

/** Folders with programs of Kubernetes. */
export interface KubernetesFolders {
  /** kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl. */
  servers: string;
  /** kubeadm, kube-proxy, and etcd with the name `server`. */
  kubeadm: string;
}

/** What kube-proxy runs, and all that it loads. */
const iptablesFiles =
  /^(lib64(\/|$)|usr\/sbin\/xtables-nft-multi$|(usr\/)?lib\/[^/]*-linux-gnu\/(ld-|lib(c|m|mnl|nftnl|xtables)[.-]|xtables\/))/;
const iptablesNames = ['iptables', 'ip6tables'].flatMap((name) => [name, `${name}-save`, `${name}-restore`]);

/**
 * Writes the images that kubeadm asks for, an OCI archive each, and the one of pod sandboxes. Not CoreDNS: the tests look
 * nothing up.
 * @param dir a folder that is created
 * @param version of Kubernetes, e.g. `v1.37.2`
 * @param root of the node, with iptables
 * @param busybox path of a statically linked busybox
 * @throws CommandError; NetdraError `image-missing`
 */
export function writeControlPlaneImages(
  dir: string,
  { servers, kubeadm }: KubernetesFolders,
  { version, root, busybox }: { version: string; root: string; busybox: string },
): void {
  mkdirSync(dir, { recursive: true });
  const wanted = run(join(kubeadm, 'kubeadm'), ['config', 'images', 'list', '--kubernetes-version', version]).split(
    '\n',
  );
  const programs: Record<string, string> = {
    'kube-apiserver': join(servers, 'kube-apiserver'),
    'kube-controller-manager': join(servers, 'kube-controller-manager'),
    'kube-scheduler': join(servers, 'kube-scheduler'),
    'kube-proxy': join(kubeadm, 'kube-proxy'),
    etcd: join(kubeadm, 'server'),
  };
  for (const [program, source] of Object.entries(programs)) {
    const name = wanted.find((image) => image.includes(`/${program}:`));
    if (name === undefined) {
      throw new NetdraError('image-missing', `kubeadm ${version} asks for no image of ${program}: ${wanted.join(' ')}`);
    }
    const files = [...rootFiles(program, source), ...(program === 'kube-proxy' ? iptables(root) : [])];
    const env = ['PATH=/usr/local/bin:/usr/sbin:/usr/bin'];
    writeFileSync(join(dir, `${program}.tar`), encodeOciArchive([{ name, files, env }]));
  }
  writeFileSync(join(dir, 'pause.tar'), makePauseArchive(busybox));
}

function rootFiles(program: string, source: string): TarEntry[] {
  const folders = ['etc', 'run', 'tmp', 'usr', 'usr/local', 'usr/local/bin', 'usr/sbin', 'var'];
  return [
    ...folders.map((path): TarEntry => ({ type: 'directory', path })),
    { type: 'file', path: `usr/local/bin/${program}`, mode: 0o755, data: readFileSync(source) },
  ];
}

function iptables(root: string): TarEntry[] {
  const links = iptablesNames.map((name): TarEntry => {
    return { type: 'symlink', path: `usr/sbin/${name}`, target: 'xtables-nft-multi' };
  });
  return [...readTarEntries(root).filter(({ path }) => iptablesFiles.test(path)), ...links];
}
