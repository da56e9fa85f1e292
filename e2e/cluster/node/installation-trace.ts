import { lstatSync } from 'node:fs';
import { join } from 'node:path';
import { listFolder } from '../../node/host-state.ts';
import { kubeletDir } from './kubelet.ts';
import type { RealNode } from './real-node.ts';

/** Resource types whose objects come and go by themselves. */
const passing = ['events', 'events.events.k8s.io', 'componentstatuses'];
/** Objects that controllers of Kubernetes create when they start, and for each namespace. */
const ofControllers =
  / (ServiceAccount (kube-system\/|\S+\/default$)|ConfigMap \S+\/kube-root-ca.crt|ClusterTrustBundle |Lease )/;

/** Folders in which an installation can leave something. Those in /run include CDI, NRI, network namespaces and `devinfo`. */
const folders = ['/run', '/var/lib', '/etc/cni', '/etc/dra', '/opt/cni'];
/** The first four are of the test and its machine, the others what the kubelet stores about pods and images. */
const skipped = [
  '/run/netdra',
  '/run/whole-proc',
  '/var/lib/dpkg',
  '/var/lib/apt',
  ...['pods', 'image_manager', 'allocated_pods_state', 'dra_health_state'].map((name) => join(kubeletDir, name)),
];

/** Everything that an installation can leave behind, in sorted lines: objects by kind and name, files by mode and path. */
export function traceInstallation(node: RealNode): string[] {
  const types = node.kubectl('api-resources', '--verbs=list', '--output=name').trim().split('\n');
  const template = '{range .items[*]}{.apiVersion} {.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}';
  const listed = types.filter((type) => !passing.includes(type)).join(',');
  const objects = node.kubectl('get', listed, '--all-namespaces', `--output=jsonpath=${template}`).split('\n');
  const ofUsers = objects.filter((line) => line !== '' && !ofControllers.test(line));
  return [...ofUsers, ...[...folders, node.runtime.cniBinDir].flatMap(listTree)].sort();
}

/** Lines `MODE PATH` for a file or folder and all below it. The mode, in octal digits, has the type of the entry. */
function listTree(path: string): string[] {
  const info = skipped.includes(path) ? undefined : lstatSync(path, { throwIfNoEntry: false });
  if (info === undefined) return [];
  const line = `${info.mode.toString(8)} ${path}`;
  return info.isDirectory() ? [line, ...listFolder(path).flatMap((name) => listTree(join(path, name)))] : [line];
}
