import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { cpuList, parseCpuList, readNearNodes, readNumaNodes } from '../../../../src/node/numa/index.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

describe('parseCpuList', () => {
  it('parses kernel output', () => {
    expect(parseCpuList('0-3,8,10-11\n')).toEqual(new Set([0, 1, 2, 3, 8, 10, 11]));
    expect(parseCpuList('\n')).toEqual(new Set());
    expect(parseCpuList('6-8,0-3,2-7,8')).toEqual(new Set([0, 1, 2, 3, 4, 5, 6, 7, 8]));
    for (const text of ['a', '1-', '-1', '3-1', '1,,2', '0-99999999', '0-8192', '1 2', '0,'.repeat(20_000)]) {
      expect(parseCpuList(text), text).toBeUndefined();
    }
  });

  it('merges repeated ranges instead of expanding each', () => {
    const { add } = Set.prototype;
    onTestFinished(() => void Object.assign(Set.prototype, { add }));
    let additions = 0;
    Set.prototype.add = function (value) {
      additions++;
      return add.call(this, value);
    };
    const numbers = parseCpuList(`${'0-8191,'.repeat(4_000)}0-8191`);
    expect([numbers?.size, additions]).toEqual([8_192, 8_192]);
  });

  it('parses the output of cpuList', () =>
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat({ max: 300 })), (numbers) => {
        expect(parseCpuList(cpuList(numbers))).toEqual(new Set(numbers));
      }),
    ));
});

describe('readNumaNodes', () => {
  it('returns the CPUs of each node, an empty list for memory-only nodes, and no node without NUMA', () => {
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

it('readNearNodes returns the node itself, followed by the nearest other nodes of its socket', () => {
  using dir = tempDir();
  const write = (path: string, text: string) => {
    mkdirSync(join(dir.path, 'devices/system', path, '..'), { recursive: true });
    writeFileSync(join(dir.path, 'devices/system', path), text);
  };
  expect(readNearNodes(3, dir.path)).toEqual([3]);
  // Two sockets with two nodes each, and a node with memory only, which is as near.
  const distances = ['10 12 12 21 21', '12 10 12 21 21', '12 12 10 21 21', '21 21 21 10 12', '21 21 21 12 10'];
  for (const [index, node] of [0, 1, 4, 6, 7].entries()) {
    const cpu = node === 4 ? '' : `${node * 2}`;
    write(`node/node${node}/cpulist`, `${cpu}\n`);
    write(`node/node${node}/distance`, `${distances[index]}\n`);
    if (cpu !== '') write(`cpu/cpu${cpu}/topology/physical_package_id`, `${node < 4 ? 0 : 1}\n`);
  }
  expect([0, 1, 4, 6, 7].map((node) => readNearNodes(node, dir.path))).toEqual([[0, 1], [1, 0], [4], [6, 7], [7, 6]]);
  // Another socket is the least distant one.
  write('node/node6/distance', '11 21 21 10 12\n');
  expect(readNearNodes(6, dir.path)).toEqual([6]);
});
