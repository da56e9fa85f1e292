import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import type { GetCluster } from '../describe-cluster.ts';
import { startNumaDrivers } from '../node/numa-drivers.ts';
import type { RealNode } from '../node/real-node.ts';
import { createPodWithClaim, testClass } from '../objects.ts';
import { startExample } from './examples.ts';

/** Time for three attempts of the kubelet, and for an event or a status to appear. */
const slow = { timeout: 120_000, interval: 500 };

const otherDrivers = ['dra.cpu', 'dra.memory', 'accelerator.example.com'];

/** On a machine whose CPUs are all on NUMA node 0, with simulated VFs on the nodes 0 and 1. @param areLists as in the slices */
export function describeNuma(get: GetCluster, getNode: () => RealNode, areLists: boolean): void {
  const onNode = (node: number) => [
    `device.attributes["resource.kubernetes.io"].numaNode${areLists ? `.includes(${node})` : ` == ${node}`}`,
  ];

  /** About a pod or a claim of that name. */
  async function eventsOf(reason: string, name: string): Promise<string[]> {
    const events = await get().cluster.events();
    return events
      .filter(({ reason: is, regarding }) => is === reason && regarding.name === name)
      .map(({ regarding: { kind, name }, note }) => `${kind} ${name}: ${note}`);
  }

  async function conditionOf(claim: string) {
    const { status } = (await get().cluster.find<ResourceV1ResourceClaim>('ResourceClaim', claim)) ?? {};
    const found = status?.devices?.[0]?.conditions?.find(({ type }) => type === 'NumaAligned');
    return found && [found.status, found.reason];
  }

  /** A pod with a CPU of its own, which the kubelet's static CPU manager chooses. */
  async function startPinned(name: string, node: number, deviceClassName?: string): Promise<void> {
    const { cluster } = get();
    const request = { name: 'vf', selectors: onNode(node), ...(deviceClassName && { deviceClassName }) };
    const containers = [{ name: 'main', limits: { cpu: '1', memory: '64Mi' } }];
    await createPodWithClaim(cluster, name, [request], { containers });
  }

  async function alignmentIn(pod: string): Promise<boolean | undefined> {
    const [device] = (await get().view(pod).metadata(`resourceclaims/${pod}`, 'vf')).devices;
    return device?.attributes?.numaAligned?.bool;
  }

  describe('CPUs and devices', () => {
    it("are on one NUMA node, together with memory and other drivers' devices, if the claim requires that", {
      tags: 'newest',
    }, async () => {
      const { cluster } = get();
      await using _drivers = await startNumaDrivers(getNode());
      await startExample(cluster, 'numa-aligned.yaml');
      await cluster.waitUntilRunning('numa-aligned');
      // The VFs of the other node come first in the slices.
      await expect.poll(() => cluster.log('numa-aligned', 'forwarder'), slow).toBe('NIC and CPUs on NUMA node 0\n');
      const [claim] = await cluster.list<ResourceV1ResourceClaim>('ResourceClaim');
      expect(claim?.status?.allocation?.devices?.results?.map(({ driver }) => driver).sort()).toEqual(
        [...otherDrivers, cluster.target.driver].sort(),
      );
      await expect.poll(() => conditionOf(claim?.metadata.name ?? ''), slow).toEqual(['True', 'SameNumaNode']);
      await cluster.remove('Pod', 'numa-aligned');
    });

    it('on different NUMA nodes are reported, but the container starts', { tags: 'oldest' }, async () => {
      const { cluster, view } = get();
      await startPinned('far', 1);
      await cluster.waitUntilRunning('far');
      const cpu = (await view('far').read('sh', '-c', 'grep Cpus_allowed_list /proc/self/status')).split(/\s+/)[1];
      expect(cpu).toMatch(/^\d+$/);
      const ealArgs = await view('far').read('netdra-metadata', 'eal-args', '--af-packet', '--lcores');
      expect(ealArgs).toMatch(new RegExp(`^--vdev=net_af_packet0,iface=\\S+ --no-pci --lcores=0@${cpu}$`, 'm'));
      const text = `container main: its CPUs ${cpu} are on NUMA node 0, and device fe00-\\S+ is on NUMA node 1$`;
      await expect
        .poll(async () => (await eventsOf('NumaMisaligned', 'far')).sort(), slow)
        .toEqual([
          expect.stringMatching(`^Pod far: .*${text}`),
          expect.stringMatching(`^ResourceClaim far: .*${text}`),
        ]);
      expect(await alignmentIn('far')).toBe(false);
      await expect.poll(() => conditionOf('far'), slow).toEqual(['False', 'OtherNumaNode']);
      await cluster.remove('Pod', 'far');

      await startPinned('near', 0);
      await cluster.waitUntilRunning('near');
      expect(await alignmentIn('near')).toBe(true);
      await expect.poll(() => conditionOf('near'), slow).toEqual(['True', 'SameNumaNode']);
      await cluster.remove('Pod', 'near');
    });

    it('on different NUMA nodes keep the container from starting if its class requires alignment, and mark the claim', {
      tags: 'oldest',
    }, async () => {
      const { cluster } = get();
      const { metadata } = await cluster.create(testClass(cluster, 'near', { numa: 'require' }));
      try {
        // Without CPUs of its own it passes.
        await createPodWithClaim(cluster, 'shared', [
          { name: 'vf', selectors: onNode(1), deviceClassName: metadata.name },
        ]);
        await cluster.waitUntilRunning('shared');
        expect([await alignmentIn('shared'), await conditionOf('shared')]).toEqual([undefined, undefined]);

        await startPinned('refused', 1, metadata.name);
        const text = `container main cannot start with claim ${cluster.namespace}/refused, which has numa: require: its CPUs \\d+ are on NUMA node 0, and device fe00-\\S+ is on NUMA node 1 .*delete it`;
        await expect
          .poll(() => eventsOf('ContainerHeldBack', 'refused'), slow)
          .toEqual([expect.stringMatching(`^Pod refused: ${text}`)]);
        await expect.poll(() => conditionOf('refused'), slow).toEqual(['False', 'ContainerRefused']);
        await cluster.remove('Pod', 'refused');

        await startPinned('required', 0, metadata.name);
        await cluster.waitUntilRunning('required');
        expect(await alignmentIn('required')).toBe(true);

        await createPodWithClaim(cluster, 'weaker', [
          { name: 'vf', deviceClassName: metadata.name, config: { numa: 'report' } },
        ]);
        await expect
          .poll(() => eventsOf('DeviceNotPrepared', 'weaker'), slow)
          .toContainEqual(expect.stringMatching(/numa.*report.*require/s));
      } finally {
        await cluster.remove('DeviceClass', metadata.name);
      }
    });
  });
}
