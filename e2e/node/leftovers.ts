import type { Containerd } from './containerd.ts';
import { listCgroupFolders, listFolder, listMountPoints } from './host-state.ts';
import { listOwnProcesses } from './teardown.ts';

/** State of a node before a test. */
export interface NodeBaseline {
  mounts: string[];
  links: string[];
  netns: string[];
  cniResults: string[];
}

const netnsDir = '/run/netns';
const cniResultsDir = '/var/lib/cni/results';

export function takeBaseline(): NodeBaseline {
  return {
    mounts: listMountPoints(),
    links: listFolder('/sys/class/net'),
    netns: listFolder(netnsDir),
    cniResults: listFolder(cniResultsDir),
  };
}

/**
 * Everything on the node now that was not there before: mounts, links, network namespaces, CNI results, and processes
 * and cgroups of the containerd. One line of text each; an empty list means that nothing was left behind.
 * @param isExpected whether a path, a name or an argument of a process belongs to something that may exist
 */
export function listLeftovers(
  { socketPath, cri: { cgroupParent } }: Pick<Containerd, 'socketPath' | 'cri'>,
  before: NodeBaseline,
  isExpected: (text: string) => boolean = () => false,
): string[] {
  const now = takeBaseline();
  const added = (kind: keyof NodeBaseline) =>
    now[kind].filter((each) => !before[kind].includes(each) && !isExpected(each));
  const processes = listOwnProcesses(socketPath, cgroupParent).filter(
    ({ args, cgroups }) => ![...args, ...cgroups].some(isExpected),
  );
  // Each hierarchy of cgroup v1 has the same ones.
  const cgroups = listCgroupFolders(cgroupParent).filter((path) => !isExpected(path));
  return [
    ...processes.map(({ pid, args }) => `process ${pid} ${args.join(' ')}`),
    ...added('mounts').map((path) => `mount ${path}`),
    ...added('netns').map((name) => `network namespace ${netnsDir}/${name}`),
    ...added('links').map((name) => `link ${name}`),
    ...added('cniResults').map((name) => `CNI result ${cniResultsDir}/${name}`),
    ...new Set(cgroups.map((path) => `cgroup ${path.slice(path.indexOf(cgroupParent))}`)),
  ];
}
