import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { errnoCode } from '../../lib/errors.ts';
import { parseCpuList } from './cpu-list.ts';

/** Online CPUs of each NUMA node, by node number. A memory-only node has an empty set. */
export type NumaNodes = ReadonlyMap<number, ReadonlySet<number>>;

/**
 * Reads the NUMA nodes of this machine, synchronously, since the kernel has the files in memory.
 * @param root mount point of sysfs
 * @returns an empty map if the kernel has no NUMA nodes
 * @throws Error for files that cannot be read
 */
export function readNumaNodes(root = '/sys'): NumaNodes {
  const dir = join(root, 'devices/system/node');
  const nodes = new Map<number, ReadonlySet<number>>();
  for (const name of unlessMissing(() => readdirSync(dir)) ?? []) {
    const [, number] = /^node(\d+)$/.exec(name) ?? [];
    if (number === undefined) continue;
    const path = join(dir, name, 'cpulist');
    const text = readFileSync(path, 'utf8');
    const cpus = parseCpuList(text);
    if (cpus === undefined) throw new Error(`${path} is not a list of CPUs: ${JSON.stringify(text)}`);
    nodes.set(Number(number), cpus);
  }
  return nodes;
}

/**
 * Returns a NUMA node, followed by the nearest nodes of the same socket, if the socket has several. Leaves out nodes without
 * CPUs.
 * @param root mount point of sysfs
 * @returns only the node itself if the kernel does not know it or its socket
 * @throws Error for files that cannot be read
 * Source: `numaNode` in list form, Kubernetes dynamic-resource-allocation, package `deviceattribute`.
 */
export function readNearNodes(node: number, root = '/sys'): number[] {
  const readOptional = (path: string) => unlessMissing(() => readFileSync(join(root, path), 'utf8').trim());
  const socketOf = (cpus: ReadonlySet<number> = new Set()) => {
    const [cpu] = cpus;
    return cpu === undefined ? undefined : readOptional(`devices/system/cpu/cpu${cpu}/topology/physical_package_id`);
  };
  const nodes = readNumaNodes(root);
  const socket = socketOf(nodes.get(node));
  const numbers = [...nodes.keys()].sort((one, other) => one - other);
  const distances = readOptional(`devices/system/node/node${node}/distance`)?.split(/\s+/) ?? [];
  // The file has a column for each online node, in order.
  const others = numbers
    .map((number, index) => ({ number, distance: Number(distances[index]) }))
    .filter(({ number, distance }) => number !== node && !Number.isNaN(distance));
  const least = Math.min(...others.map(({ distance }) => distance));
  const near = others.filter(
    ({ number, distance }) => distance === least && socket !== undefined && socketOf(nodes.get(number)) === socket,
  );
  return [node, ...near.map(({ number }) => number)];
}

/** Returns `undefined` if the file or directory is missing, as on kernels without NUMA. */
function unlessMissing<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}
