import { cpuList, type NumaNodes, parseCpuList } from '../../node/numa/index.ts';
import { type Container, draPrefix } from './container-fields.ts';

/** Maximum number of these variables that are searched: more than the CPU claims of a container. */
const mostDraVariables = 64;
/** CPU weight of a container for each requested CPU, and the maximum weight. Source: kubelet, `MilliCPUToShares`. */
const sharesPerCpu = 1024;
const maxShares = 262_144;
/** cgroups of pods whose QoS class is not Guaranteed. The kubelet gives these pods no exclusive CPUs. */
const lowerClasses = /kubepods[-/](?:burstable|besteffort)/;

/** NUMA placement of a container's exclusive CPUs and memory. */
export interface Placement {
  cpus: ReadonlySet<number>;
  cpuNodes: ReadonlySet<number>;
  /** CPUs that belong to no node, such as offline ones. */
  strayCpus: ReadonlySet<number>;
  /**
   * Nodes with CPUs that the container's memory is bound to. Empty if the memory is not bound, or bound to memory-only nodes.
   */
  memoryNodes: ReadonlySet<number>;
}

/** Result of a comparison; `unknown` if a NUMA node is unknown. */
export type NumaResult = 'aligned' | 'misaligned' | 'unknown';

/**
 * Returns the exclusive CPUs of a container: the CPUs of its claims, or the CPUs that the kubelet's static CPU manager gives
 * a container of a Guaranteed pod that requests whole CPUs. Both confine all other containers to the shared CPUs. CPUs of the
 * static CPU manager are recognized by their number, which is the number that the container requests; CPUs of a claim by a
 * variable of dra-driver-cpu. Tenants can write that variable, so it only shows that the container must be compared: its
 * value is not read, and the CPUs are those that the runtime sets.
 * docs/decisions/0034-cpus-beside-their-devices.md
 * @param claimUids UIDs of the claims that the container has
 * @returns a list of CPUs; `undefined` if the container has no exclusive CPUs
 */
export function exclusiveCpus(
  { cgroupParent }: { cgroupParent: string },
  { env, cpu: { cpus, shares } }: Pick<Container, 'cpu' | 'env'>,
  claimUids: ReadonlySet<string> = new Set(),
): string | undefined {
  const count = parseCpuList(cpus)?.size ?? 0;
  if (count === 0) return undefined;
  if (hasCpusOfClaim(env, claimUids)) return cpus;
  if (lowerClasses.test(cgroupParent)) return undefined;
  return shares === Math.min(count * sharesPerCpu, maxShares) ? cpus : undefined;
}

/** Returns whether a container has CPUs of a claim. A container with too many of these variables counts as having them. */
function hasCpusOfClaim(env: readonly string[], claimUids: ReadonlySet<string>): boolean {
  let count = 0;
  for (const variable of env) {
    if (!variable.startsWith(draPrefix)) continue;
    count++;
    const uid = variable.slice(draPrefix.length, variable.indexOf('=', draPrefix.length));
    if (count > mostDraVariables || claimUids.has(uid)) return true;
  }
  return false;
}

/** Returns the placement of a container. @returns `undefined` if the lists cannot be parsed */
export function placementOf(cpus: string, mems: string, nodes: NumaNodes): Placement | undefined {
  const [all, memory] = [parseCpuList(cpus), parseCpuList(mems)];
  if (all === undefined || memory === undefined) return undefined;
  const withCpus = [...nodes].filter(([, ofNode]) => ofNode.size > 0);
  const used = withCpus.filter(([, ofNode]) => !all.isDisjointFrom(ofNode));
  return {
    cpus: all,
    cpuNodes: new Set(used.map(([node]) => node)),
    strayCpus: used.reduce<Set<number>>((rest, [, ofNode]) => rest.difference(ofNode), all),
    memoryNodes: memory.intersection(new Map(withCpus)),
  };
}

/**
 * Returns whether the container has CPUs and memory on the device's NUMA node, and none on nodes without any of its devices.
 * @param node node of the device; `undefined` if unknown
 * @param others nodes of all devices that the container has
 */
export function compareNodes(
  node: number | undefined,
  others: readonly (number | undefined)[],
  { cpuNodes, strayCpus, memoryNodes }: Placement,
  nodes: NumaNodes,
): NumaResult {
  // With only one node, a device whose node is unknown is aligned: firmware often does not report the only node.
  const isOnlyNode = [...nodes.values()].filter(({ size }) => size > 0).length <= 1;
  if (node === undefined) return isOnlyNode ? 'aligned' : 'unknown';
  const compare = (used: ReadonlySet<number>, isWhole: boolean): NumaResult => {
    if (!used.has(node)) return isWhole ? 'misaligned' : 'unknown';
    const isElsewhere = !used.isSubsetOf(new Set(others));
    if (isElsewhere) return others.includes(undefined) ? 'unknown' : 'misaligned';
    return isWhole ? 'aligned' : 'unknown';
  };
  const results = [compare(cpuNodes, strayCpus.size === 0)];
  if (memoryNodes.size > 0) results.push(compare(memoryNodes, true));
  return worstOf(results);
}

export function worstOf(results: readonly NumaResult[]): NumaResult {
  return (['misaligned', 'unknown'] as const).find((each) => results.includes(each)) ?? 'aligned';
}

/** Describes a placement: `its CPUs 2-3 are on NUMA node 1`. */
export function describePlacement({ cpus, cpuNodes, strayCpus, memoryNodes }: Placement): string {
  const where = [
    ...(cpuNodes.size > 0 ? [`on ${nodesText(cpuNodes)}`] : []),
    ...(strayCpus.size > 0 ? [`${cpuList(strayCpus)} on no node that the kernel reports`] : []),
  ];
  const text = `its CPUs ${cpuList(cpus)} are ${where.join(' and ')}`;
  return memoryNodes.size === 0 ? text : `${text}, its memory is on ${nodesText(memoryNodes)}`;
}

function nodesText(nodes: ReadonlySet<number>): string {
  return `NUMA node${nodes.size === 1 ? '' : 's'} ${cpuList(nodes)}`;
}
