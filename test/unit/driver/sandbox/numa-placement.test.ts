import { describe, expect, it } from 'vitest';
import {
  compareNodes,
  describePlacement,
  exclusiveCpus,
  type NumaResult,
  placementOf,
} from '../../../../src/driver/sandbox/numa-placement.ts';

/** Two sockets of four CPUs, of which CPU 7 is offline, and a node with memory only. */
const nodes = new Map([
  [0, new Set([0, 1, 2, 3])],
  [1, new Set([4, 5, 6])],
  [2, new Set<number>()],
]);
const place = (cpus: string, mems = '') => {
  const placement = placementOf(cpus, mems, nodes);
  if (placement === undefined) throw new Error('not a list');
  return placement;
};

describe('exclusiveCpus', () => {
  const of = (cpus: string, shares: number, cgroupParent = '/kubepods/pod1', env: string[] = []) =>
    exclusiveCpus({ cgroupParent }, { env, cpu: { cpus, shares, mems: '' } }, new Set(['a', 'b']));
  const burstable = '/kubepods/burstable/pod1';

  it.each([
    ['returns the CPUs of a Guaranteed container with two CPUs', of('2-3', 2048), '2-3'],
    [
      'returns the CPUs of a Guaranteed container with systemd cgroups',
      of('2-3', 2048, '/kubepods.slice/kubepods-pod1.slice'),
      '2-3',
    ],
    ['returns the CPUs of a container with more CPUs than CPU shares can express', of('0-299', 262_144), '0-299'],
    ['returns nothing without the static CPU manager', of('', 2048), undefined],
    ['returns nothing for a fraction of a CPU on shared CPUs', of('0-1', 1536), undefined],
    [
      'returns nothing for a Burstable container on as many shared CPUs as it requests',
      of('0-1', 2048, '/kubepods/burstable/pod1'),
      undefined,
    ],
    [
      'returns nothing for a Burstable container with systemd cgroups',
      of('0-1', 2048, '/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice'),
      undefined,
    ],
    ['returns nothing for a container without a CPU request', of('0-1', 2, '/kubepods/besteffort/pod1'), undefined],
    ['returns the CPUs of a claim in any QoS class', of('0,1', 2, burstable, ['A=1', 'DRA_CPUSET_b=0,1']), '0,1'],
    ['returns the CPUs of a claim whose CPUs can change', of('0,1', 2, burstable, ['DRA_CPUSET_a=dynamic']), '0,1'],
    [
      'returns nothing if the runtime does not set the CPUs of a claim',
      of('', 2, burstable, ['DRA_CPUSET_a=0,1']),
      undefined,
    ],
    [
      'returns the CPUs that a container has if the variable of its claim lists others',
      of('4-5', 2, burstable, ['DRA_CPUSET_a=0,1']),
      '4-5',
    ],
    [
      'returns nothing for the variable of a claim that the container does not use',
      of('0-3', 2, burstable, ['DRA_CPUSET_x=0']),
      undefined,
    ],
    [
      'returns the CPUs even if there are more variables than claims',
      of('4', 2, burstable, Array(65).fill('DRA_CPUSET_x=0')),
      '4',
    ],
    ['returns nothing for an unreadable CPU list', of('x', 1024), undefined],
  ])('%s', (_, found, expected) => expect(found).toBe(expected));

  it('handles a megabyte of variables in less than a millisecond', () => {
    const name = 'DRA_CPUSET_a';
    for (const env of [
      [`${name}=${'0-65535,'.repeat(131_072)}`],
      Array(10_000).fill(`DRA_CPUSET_${'x'.repeat(90)}=`),
      [`DRA_CPUSET_${'x'.repeat(1_048_576)}`],
    ]) {
      // The fastest of some, since other processes use this processor, too.
      const times = Array.from({ length: 20 }, () => {
        const start = performance.now();
        of('4-5', 2, burstable, env);
        return performance.now() - start;
      });
      expect(Math.min(...times)).toBeLessThan(1);
    }
  });
});

describe('compareNodes', () => {
  const one = (node: number | undefined, cpus: string, mems?: string) =>
    compareNodes(node, [node], place(cpus, mems), nodes);
  const two = (cpus: string, mems?: string) => compareNodes(0, [0, 1], place(cpus, mems), nodes);

  it.each<[string, NumaResult, NumaResult]>([
    ['returns aligned if all CPUs are on the node of the device', one(0, '2-3'), 'aligned'],
    ['returns misaligned if all CPUs are on the other node', one(0, '4-5'), 'misaligned'],
    ['returns misaligned if some CPUs are on the other node', one(0, '3-4'), 'misaligned'],
    ['returns aligned if memory is on the node of the device', one(1, '4', '1'), 'aligned'],
    ['returns misaligned if memory is on the other node', one(1, '4', '0'), 'misaligned'],
    ['returns misaligned if memory is on both nodes', one(1, '4', '0-1'), 'misaligned'],
    ['returns aligned if memory is on a node without CPUs', one(1, '4', '2'), 'aligned'],
    ['returns aligned if both nodes have a device and CPUs', two('3-4', '0-1'), 'aligned'],
    ['returns misaligned if both nodes have a device, but only the other node has CPUs', two('4'), 'misaligned'],
    ["returns aligned if both nodes have a device, but only the device's node has CPUs", two('0'), 'aligned'],
    ['returns unknown if the node of the device is unknown', one(undefined, '0'), 'unknown'],
    ['returns unknown if one of the CPUs is offline', one(1, '6-7'), 'unknown'],
    ['returns unknown if the only CPU is offline', one(1, '7'), 'unknown'],
    ['returns misaligned if one CPU is offline and another is on the other node', one(1, '3,6-7'), 'misaligned'],
    [
      'returns unknown if CPUs are on two nodes and the node of another device is unknown',
      compareNodes(0, [0, undefined], place('3-4'), nodes),
      'unknown',
    ],
    [
      "returns aligned if all CPUs are on the device's node, although another device's node is unknown",
      compareNodes(0, [0, undefined], place('3'), nodes),
      'aligned',
    ],
  ])('%s', (_, result, expected) => expect(result).toBe(expected));

  it('treats every device as near if the machine has one NUMA node or none, whatever firmware reports', () => {
    for (const few of [new Map(), new Map([[0, new Set([0, 1])]])]) {
      const placement = placementOf('0', '', few);
      expect(placement && compareNodes(undefined, [undefined], placement, few)).toBe('aligned');
    }
    const only = new Map([[0, new Set([0])]]);
    const placement = placementOf('0', '', only);
    expect(placement && compareNodes(1, [1], placement, only)).toBe('misaligned');
  });

  it('describes in words where CPUs and memory of a container are', () => {
    expect(describePlacement(place('2-3'))).toBe('its CPUs 2-3 are on NUMA node 0');
    expect(describePlacement(place('3,4', '1'))).toBe(
      'its CPUs 3-4 are on NUMA nodes 0-1, its memory is on NUMA node 1',
    );
    expect(describePlacement(place('6-7'))).toBe(
      'its CPUs 6-7 are on NUMA node 1 and 7 on no node that the kernel reports',
    );
    expect(placementOf('1-', '', nodes)).toBeUndefined();
  });
});
