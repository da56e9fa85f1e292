import { beforeEach, describe, expect, it } from 'vitest';
import type { Container, PodSandbox } from '../../../../nri/index.ts';
import {
  SandboxError,
  type StoredClaim,
  type StoredDevice,
  type VfConfig,
} from '../../../../src/driver/model/index.ts';
import { NumaGuard } from '../../../../src/driver/sandbox/index.ts';
import { storedClaim, storedClaims, storedDevice } from '../../../doubles/stored-claims.ts';

const pod = {
  id: 's1',
  uid: 'pod-1',
  namespace: 'apps',
  name: 'dpdk',
  cgroupParent: '/kubepods/podpod-1',
} as PodSandbox;
const twoSockets = new Map([
  [0, new Set([0, 1, 2, 3])],
  [1, new Set([4, 5, 6, 7])],
]);

function deviceOf(name: string, numaNode: number | undefined, numa?: VfConfig['numa']): StoredDevice {
  const offered = numaNode === undefined ? {} : { numaNode };
  const config = numa === undefined ? {} : { numa };
  return storedDevice({ pciAddress: name, name, request: name, config, offered: offered as never });
}

function claimOf(name: string, devices: StoredDevice[]): StoredClaim {
  const identity = { namespace: 'apps', name, uid: `uid-${name}` };
  return storedClaim({ identity, podUids: ['pod-1'], devices });
}

describe('NumaGuard', () => {
  let claims: StoredClaim[];
  let nodes: () => ReadonlyMap<number, ReadonlySet<number>>;
  /** Results of comparisons, events, and claims whose condition is to be written. */
  let calls: string[];
  let guard: NumaGuard;
  let storeError: Error | undefined;

  beforeEach(() => {
    claims = [claimOf('nic', [deviceOf('vf-0', 0)])];
    nodes = () => twoSockets;
    calls = [];
    storeError = undefined;
    guard = new NumaGuard({
      store: storedClaims(() => {
        if (storeError !== undefined) throw storeError;
        return claims;
      }),
      metadata: {
        // A container names the requests that it has.
        isAnyUsedBy: ({ env }) => env.some((each) => each.startsWith('HAS_')),
        isUsedBy: ({ name }, { env }) => env.some((each) => each.startsWith(`HAS_${name}_`)),
        isRequestUsedBy: ({ name }, request, { mounts }) =>
          mounts.some(({ source }) => source === `HAS_${name}_${request}`),
      },
      numaNodes: () => nodes(),
      onCompared: (result) => calls.push(result),
      onMisaligned: ({ name: of }, { name }, reason) => calls.push(`event for ${of} and ${name}: ${reason}`),
      onCondition: ({ name }) => calls.push(`condition of ${name}`),
    });
  });

  /** A container with exclusive CPUs, as many as the list has. */
  function containerOf(
    cpus: string,
    uses = ['nic_vf-0'],
    more: { name?: string; shares?: number; mems?: string; env?: string[] } = {},
  ) {
    const { name = 'main', shares = 1024 * cpus.split(',').length, mems = '', env = [] } = more;
    const has = uses.map((each) => `HAS_${each}`);
    const mounts = has.map((source) => ({ source }));
    return { id: name, name, env: [...has, ...env], mounts, cpu: { cpus, shares, mems } } as unknown as Container;
  }

  const condition = (name = 'nic', device = 'vf-0') => guard.conditionOf(`uid-${name}`, device);
  const alignment = (sandboxId = 's1') => guard.alignmentOf('uid-nic', sandboxId, 'vf-0');

  it('ignores containers that have no exclusive CPUs or no devices', () => {
    claims = [claimOf('nic', [deviceOf('vf-0', 0, 'require'), deviceOf('vf-1', 1, 'require')])];
    expect(guard.check(pod, containerOf('4', undefined, { shares: 2 }))).toBe(false);
    expect(guard.check(pod, containerOf('4', []))).toBe(false);
    expect(guard.check(pod, containerOf('4', ['nic_none']))).toBe(false);
    expect([calls, condition(), alignment()]).toEqual([[], undefined, undefined]);
    // Only the device of the request that it has.
    expect(guard.check(pod, containerOf('4', ['nic_vf-1']))).toBe(true);
    expect([calls, condition()?.status]).toEqual([['aligned'], 'Unknown']);
    expect(condition('nic', 'vf-1')).toMatchObject({ status: 'True', reason: 'SameNumaNode' });
  });

  it('reports a container on another NUMA node, with both nodes, and lets it start', () => {
    expect(guard.check(pod, containerOf('4,5', undefined, { mems: '1' }))).toBe(true);
    const where =
      'container main: its CPUs 4-5 are on NUMA node 1, its memory is on NUMA node 1, and device vf-0 is on NUMA node 0';
    expect(calls).toEqual(['misaligned', `event for dpdk and nic: ${where}`]);
    expect([alignment(), alignment('s2')]).toEqual(['misaligned', undefined]);
    expect(condition()).toEqual({ type: 'NumaAligned', status: 'False', reason: 'OtherNumaNode', message: where });
    // The same container again: an event, but nothing new in metadata and status.
    expect(guard.check(pod, containerOf('4,5', undefined, { mems: '1' }))).toBe(false);
    expect(calls).toHaveLength(4);
  });

  it('reports the worst placed container of each device', () => {
    expect(guard.check(pod, containerOf('0', undefined, { name: 'init' }))).toBe(true);
    expect([alignment(), condition()?.status]).toEqual(['aligned', 'True']);
    expect(guard.check(pod, containerOf('4'))).toBe(true);
    expect([alignment(), condition()?.message]).toEqual(['misaligned', expect.stringMatching(/^container main: /)]);
    // In the pod's next sandbox all of them start anew.
    expect(guard.check({ ...pod, id: 's2' }, containerOf('1'))).toBe(true);
    expect([alignment(), alignment('s2'), condition()?.status]).toEqual([undefined, 'aligned', 'True']);
  });

  it('rejects a container on another NUMA node with numa: require; sets a condition on its claim after three rejections', () => {
    claims = [claimOf('nic', [deviceOf('vf-0', 0, 'require')]), claimOf('other', [deviceOf('vf-9', 1)])];
    const refused = containerOf('4', ['nic_vf-0', 'other_vf-9']);
    const refuse = () => {
      try {
        return guard.check(pod, refused);
      } catch (error) {
        return error;
      }
    };
    for (const attempt of [1, 2]) {
      const error = refuse();
      expect(error).toBeInstanceOf(SandboxError);
      expect(error, `${attempt}`).toMatchObject({
        code: 'numa-mismatch',
        retriable: true,
        claim: 'apps/nic',
        hint: expect.stringContaining('matchAttribute'),
        message:
          'container main cannot start with claim apps/nic, which has numa: require: its CPUs 4 are on NUMA node 1, and device vf-0 is on NUMA node 0',
      });
      expect([condition(), alignment()]).toEqual([undefined, undefined]);
    }
    calls = [];
    refuse();
    expect(calls).toEqual(['refused', 'condition of nic']);
    expect(condition()).toMatchObject({ status: 'False', reason: 'ContainerRefused' });
    refuse();
    expect(calls).toEqual(['refused', 'condition of nic', 'refused']);
    expect(guard.check(pod, containerOf('4', undefined, { shares: 2 }))).toBe(true);
    expect(condition()).toMatchObject({ status: 'Unknown', reason: 'NotCompared' });
    expect(guard.check(pod, containerOf('0'))).toBe(true);
    expect([condition()?.reason, alignment()]).toEqual(['SameNumaNode', 'aligned']);
  });

  it.each<[string, () => void]>([
    [
      'the NUMA node of the device is unknown',
      () => (claims = [claimOf('nic', [deviceOf('vf-0', undefined, 'require')])]),
    ],
    [
      'the NUMA nodes cannot be read',
      () => {
        claims = [claimOf('nic', [deviceOf('vf-0', 0, 'require')])];
        nodes = () => {
          throw new Error('EACCES');
        };
      },
    ],
  ])('rejects a container only with numa: require if %s', (_, set) => {
    set();
    expect(() => guard.check(pod, containerOf('4'))).toThrow(/unknown|cannot be read: EACCES/);
    expect(() => guard.check(pod, containerOf('4'))).toThrow(expect.objectContaining({ code: 'numa-unknown' }));
    const [claim] = claims;
    for (const device of claim?.devices ?? []) device.config = {};
    calls = [];
    guard.check(pod, containerOf('4'));
    expect(calls).toEqual(['unknown']);
    expect(condition()).toMatchObject({ status: 'Unknown', reason: 'NumaNodeUnknown' });
  });

  it('judges a container by the devices of all its claims', () => {
    claims = [claimOf('nic', [deviceOf('vf-0', 0, 'require')]), claimOf('other', [deviceOf('vf-9', 1, 'require')])];
    guard.check(pod, containerOf('3,4', ['nic_vf-0', 'other_vf-9']));
    expect(calls).toEqual(['aligned']);
    expect(() => guard.check(pod, containerOf('3,4'))).toThrow(
      'its CPUs 3-4 are on NUMA nodes 0-1, and device vf-0 is',
    );
  });

  it.each([
    ['of a claim that the container does not use', ['DRA_CPUSET_x=0-1']],
    ['of its own claim', ['DRA_CPUSET_uid-nic=0-1']],
    [
      'of its own claim, after a thousand other variables',
      [...Array(1_000).fill('DRA_CPUSET_x=0-1'), 'DRA_CPUSET_uid-nic=0'],
    ],
    ['that fills a megabyte', [`DRA_CPUSET_uid-nic=${'0-65535,'.repeat(131_072)}0`]],
  ])('compares the CPUs that the runtime sets, not the CPUs in a variable %s', (_, env) => {
    claims = [claimOf('nic', [deviceOf('vf-0', 0, 'require')])];
    const where = 'its CPUs 4-5 are on NUMA node 1, and device vf-0 is on NUMA node 0';
    const start = process.cpuUsage();
    expect(() => guard.check(pod, containerOf('4,5', undefined, { env }))).toThrow(where);
    guard.observe(pod, containerOf('4,5', undefined, { env }));
    expect(process.cpuUsage(start).user).toBeLessThan(500_000);
    expect(condition()).toMatchObject({ status: 'False', reason: 'OtherNumaNode' });
  });

  it('ignores a DRA_CPUSET variable that names no claim of the container', () => {
    const burstable = { ...pod, cgroupParent: '/kubepods/burstable/podpod-1' };
    const shared = (env: string[]) => containerOf('0,1,4', undefined, { shares: 2, env });
    expect(guard.check(burstable, shared(['DRA_CPUSET_x=0']))).toBe(false);
    expect([calls, condition()]).toEqual([[], undefined]);
    guard.check(burstable, shared(['DRA_CPUSET_uid-nic=0']));
    expect(condition()).toMatchObject({ status: 'False', reason: 'OtherNumaNode' });
  });

  it('reports once that a container started without the driver, and does not count it as rejected', () => {
    claims = [claimOf('nic', [deviceOf('vf-0', 0, 'require')])];
    guard.observe(pod, containerOf('4'));
    guard.observe(pod, containerOf('4'));
    expect(calls).toEqual([expect.stringMatching(/^event for dpdk and nic: container main: /)]);
    expect([alignment(), condition()?.reason]).toEqual(['misaligned', 'OtherNumaNode']);
  });

  it("compares a running container's CPUs with its devices later if the store was unreadable", () => {
    claims = [claimOf('nic', [deviceOf('vf-0', 0)])];
    storeError = new Error('disk I/O error');
    expect(() => guard.observe(pod, containerOf('4'))).toThrow('disk I/O error');
    expect(() => guard.observeDeferred()).toThrow('disk I/O error');
    storeError = undefined;
    guard.observeDeferred();
    guard.observeDeferred();
    expect(calls).toEqual([expect.stringMatching(/^event for dpdk and nic: container main: /)]);
    expect(alignment()).toBe('misaligned');
  });

  it('clears the condition of a claim that passes to a pod without exclusive CPUs', () => {
    guard.check(pod, containerOf('4'));
    expect(condition()?.status).toBe('False');
    const next = { ...pod, id: 's2', uid: 'pod-2' };
    claims = [{ ...claims[0]!, podUids: ['pod-2'] }];
    expect(guard.check(next, containerOf('0', undefined, { shares: 2 }))).toBe(true);
    expect(condition()).toMatchObject({ status: 'Unknown', reason: 'NotCompared' });
    expect(guard.check(next, containerOf('0', undefined, { shares: 2 }))).toBe(false);
  });

  it('forgets claims that are unprepared', () => {
    guard.check(pod, containerOf('4'));
    claims = [claimOf('next', [deviceOf('vf-0', 0)])];
    guard.check({ ...pod, id: 's2' }, containerOf('0', ['next_vf-0']));
    expect([condition(), condition('next')?.status]).toEqual([undefined, 'True']);
  });
});
