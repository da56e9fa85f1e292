import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { errnoCode } from '../../lib/errors.ts';
import { parseCpuList } from './cpu-list.ts';

/** The online CPUs of each NUMA node, by its number. A node with memory only has none. */
export type NumaNodes = ReadonlyMap<number, ReadonlySet<number>>;

/**
 * Reads the NUMA nodes of this machine. Read synchronously: the kernel has the files in memory.
 * @param root where sysfs is
 * @returns empty if the kernel knows no NUMA nodes
 * @throws Error for files that cannot be read
 */
export function readNumaNodes(root = '/sys'): NumaNodes {
  const dir = join(root, 'devices/system/node');
  const nodes = new Map<number, ReadonlySet<number>>();
  for (const name of listOptional(dir)) {
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

/** Kernels without NUMA have no such directory. */
function listOptional(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return [];
    throw error;
  }
}
