import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cpuList, parseCpuList, readNumaNodes } from '../../../../src/node/numa/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

describe('parseCpuList', () => {
  it('reads what the kernel writes', () => {
    expect(parseCpuList('0-3,8,10-11\n')).toEqual(new Set([0, 1, 2, 3, 8, 10, 11]));
    expect(parseCpuList('\n')).toEqual(new Set());
    for (const text of ['a', '1-', '-1', '3-1', '1,,2', '0-99999999', '0-65536', '1 2']) {
      expect(parseCpuList(text), text).toBeUndefined();
    }
  });

  it('restores what cpuList has written', () =>
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat({ max: 300 })), (numbers) => {
        expect(parseCpuList(cpuList(numbers))).toEqual(new Set(numbers));
      }),
    ));
});

describe('readNumaNodes', () => {
  it('has the CPUs of each node, none of one with memory only, and no node without NUMA', () => {
    using dir = tempDir();
    expect(readNumaNodes(dir.path)).toEqual(new Map());
    const write = (node: string, text: string) => {
      mkdirSync(join(dir.path, 'devices/system/node', node), { recursive: true });
      writeFileSync(join(dir.path, 'devices/system/node', node, 'cpulist'), text);
    };
    write('node0', '0-1,4\n');
    write('node12', '\n');
    write('power', '');
    expect(readNumaNodes(dir.path)).toEqual(
      new Map([
        [0, new Set([0, 1, 4])],
        [12, new Set()],
      ]),
    );
    write('node1', 'offline');
    expect(() => readNumaNodes(dir.path)).toThrow('node1/cpulist is not a list of CPUs: "offline"');
  });

  it('finds CPU 0 of this machine on a node, if its kernel has NUMA', () => {
    const nodes = readNumaNodes();
    expect(nodes.size === 0 || [...nodes.values()].some((cpus) => cpus.has(0))).toBe(true);
  });
});
