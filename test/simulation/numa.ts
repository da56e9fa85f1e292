import type { SimClaim } from './api-server.ts';
import type { SimVf } from './hardware.ts';

/** Two sockets with two CPUs each. */
export const numaNodes: ReadonlyMap<number, ReadonlySet<number>> = new Map([
  [0, new Set([0, 1])],
  [1, new Set([2, 3])],
]);

/** A card that is on both sockets at once, so that pods need not be placed: VFs take turns. */
export function numaNodeOf({ vfIndex }: Pick<SimVf, 'vfIndex'>): number {
  return vfIndex % 2;
}

/** Where CPUs are, as texts such as `0` and `01`. */
function nodesOf(numbers: readonly number[]): string {
  return [...new Set(numbers)].sort().join('');
}

/**
 * The VFs of a pod that a container with these exclusive CPUs is not near, by name: VFs on another socket than all of the CPUs,
 * and all VFs if CPUs are on a socket that has none of them.
 */
export function farVfs(cpus: readonly number[], vfs: readonly SimVf[]): SimVf[] {
  const sockets = nodesOf(cpus.map((cpu) => Math.floor(cpu / 2)));
  const ofVfs = nodesOf(vfs.map(numaNodeOf));
  if (cpus.length === 0) return [];
  if (sockets === '01' && ofVfs !== '01') return [...vfs];
  return vfs.filter((vf) => !sockets.includes(`${numaNodeOf(vf)}`));
}

export function isNumaRequired({ plan }: SimClaim): boolean {
  return (plan.config as { numa?: string }).numa === 'require';
}
