import type { KubernetesObject, V1Job, V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { expectedNetworkData } from '../../ip-link.ts';
import type { GetCluster } from '../describe-cluster.ts';
import { type ContainerSpec, createPodWithClaim, testClaim, testJob, testPod, testTemplate } from '../objects.ts';

/** Prints the name and the address of the VF in the metadata file. */
const printVf = [
  'netdra-metadata',
  'exec',
  'nic/vf',
  '--',
  'sh',
  '-c',
  'echo "$NETDRA_NIC_VF_INTERFACE $NETDRA_NIC_VF_IPS"',
];
const config = { interfaceName: 'net1', addresses: ['192.0.2.7/24'] };
const printed = 'net1 192.0.2.7/24\n';
const claims = [{ name: 'nic', resourceClaimTemplateName: 'nics' }];

/** Kinds of pods and containers, and claims that pass from pod to pod: these need a real scheduler and kubelet. */
export function describePods(get: GetCluster): void {
  describe('pods of all kinds', () => {
    it('init containers, sidecars and main containers with a template claim read the same metadata file', async () => {
      const { cluster, view } = get();
      await cluster.create(testTemplate(cluster, 'nics', [{ name: 'vf', config }]));
      const initContainers: ContainerSpec[] = [
        { name: 'first', command: printVf },
        { name: 'sidecar', restartPolicy: 'Always' },
        { name: 'second', command: printVf },
      ];
      await cluster.create(testPod(cluster, 'staged', { claims, initContainers }));
      const { status } = await cluster.waitUntilRunning('staged');
      const name = status?.resourceClaimStatuses?.[0]?.resourceClaimName ?? '';
      for (const init of ['first', 'second']) expect(await cluster.log('staged', init), init).toBe(printed);
      for (const container of ['sidecar', 'main']) {
        const document = await view('staged', container).metadata('resourceclaimtemplates/nic', 'vf');
        const networkData = { interfaceName: 'net1', ips: ['192.0.2.7/24'] };
        const expected = { generation: 1, podClaimName: 'nic', claim: { name }, devices: [{ networkData }] };
        expect(document, container).toMatchObject(expected);
      }
      for (const folder of ['nic', name]) {
        const text = await view('staged').read('cat', view('staged').kepPath(folder, 'vf'));
        expect(JSON.parse(text)).toMatchObject({ metadata: { name, generation: 1 } });
      }
    });

    // Its kubelet may know a pod sooner than the node authorizer of the API server does: `nodesReadClaims` in the chart.
    it('pods created at once, 30 or one per VF, start without a single warning', {
      tags: 'newest',
    }, async () => {
      const { cluster } = get();
      const many = (await cluster.devices()).slice(0, 30).map((_, index) => `many-${index}`);
      const create = async (name: string) => {
        await createPodWithClaim(cluster, name, [{ name: 'vf', config: { interfaceName: 'net1' } }]);
      };
      await Promise.all(many.map(create));
      for (const name of many) await cluster.waitUntilRunning(name);
      expect(await cluster.warningsOf(many)).toEqual([]);
      await cluster.removeWithClaims(many);
    });

    const ends = 'a pod that is never restarted and a Job run to completion and release their VFs';
    it(ends, { tags: 'oldest' }, async () => {
      const { cluster, nodeFiles } = get();
      const before = await nodeFiles.simulatedVfs();
      await cluster.create(testTemplate(cluster, 'nics', [{ name: 'vf', config }]));
      const containers = [{ name: 'main', command: printVf }];
      await cluster.create(testPod(cluster, 'once', { claims, containers }));
      await cluster.create(testJob(cluster, 'job', { claims, containers }));
      await using _ = { [Symbol.asyncDispose]: () => cluster.remove('Job', 'job') };
      expect((await cluster.waitUntilEnded('once')).status?.phase).toBe('Succeeded');
      expect(await cluster.log('once', 'main')).toBe(printed);
      const isComplete = async () => (await cluster.find<V1Job>('Job', 'job'))?.status?.succeeded === 1;
      await cluster.until('the job is complete', isComplete);
      // Both pods still exist, but no longer have the VFs.
      expect(await cluster.list<V1Pod>('Pod')).toHaveLength(3);
      await expect.poll(() => nodeFiles.simulatedVfs(), { timeout: 20_000, interval: 250 }).toEqual(before);
    });

    it('the metadata file shows each change of the interface in a new generation, even during a driver rollout', {
      tags: 'newest',
    }, async () => {
      const { cluster, nodeFiles, view } = get();
      const claim = await cluster.create(testClaim(cluster, 'live', [{ name: 'vf', config }]));
      const containers = [{ name: 'main', capabilities: { add: ['NET_ADMIN'] } }];
      const pod = { claims: [{ name: 'nic', resourceClaimName: 'live' }], containers };
      await cluster.create(testPod(cluster, 'live', pod));
      await cluster.waitUntilRunning('live');
      const container = view('live');
      const read = () => container.metadata('resourceclaims/live', 'vf');
      const changes: { command: string[]; expected: object }[] = [
        {
          command: ['addr', 'add', '198.51.100.7/24', 'dev', 'net1'],
          expected: { networkData: { ips: ['192.0.2.7/24', '198.51.100.7/24'] } },
        },
        {
          command: ['addr', 'del', '192.0.2.7/24', 'dev', 'net1'],
          expected: { networkData: { ips: ['198.51.100.7/24'] } },
        },
        { command: ['link', 'set', 'net1', 'mtu', '1280'], expected: { attributes: { mtu: { int: 1280 } } } },
        { command: ['link', 'set', 'net1', 'down'], expected: { attributes: { linkUp: { bool: false } } } },
        { command: ['link', 'set', 'net1', 'up'], expected: { attributes: { linkUp: { bool: true } } } },
      ];
      const follow = async ({ command, expected }: (typeof changes)[number]) => {
        const { generation } = await read();
        const next = String(generation + 1);
        // A reader in the container, which waits for it.
        const waiting = container.read('netdra-metadata', 'wait', 'live/vf', '--generation', next, '--timeout', '30');
        await container.read('ip', ...command);
        await waiting;
        await expect.poll(read, { timeout: 60_000 }).toMatchObject({ devices: [expected] });
      };
      for (const change of changes) await follow(change);
      const text = () => container.read('cat', container.metadataPath('resourceclaims/live', 'vf'));
      const before = await text();
      await cluster.restartDriver();
      expect(await text()).toBe(before);
      await follow({
        command: ['link', 'set', 'net1', 'mtu', '1290'],
        expected: { attributes: { mtu: { int: 1290 } } },
      });
      await cluster.create(testTemplate(cluster, 'nics', [{ name: 'vf', config }]));
      await cluster.create(testPod(cluster, 'after', { claims }));
      await cluster.waitUntilRunning('after');
      const { devices } = await view('after').metadata('resourceclaimtemplates/nic', 'vf');
      expect(devices[0]?.networkData?.ips).toEqual(config.addresses);
      expect(devices[0]?.name).not.toBe((await read()).devices[0]?.name);
      // The new instance unprepares the claims that the old one prepared.
      await cluster.remove('Pod', 'live');
      await expect.poll(() => nodeFiles.ofClaim(claim), { timeout: 60_000, interval: 250 }).toEqual([]);
    });

    it('a pod in a user namespace has its VF and reads its metadata file', async ({ skip }) => {
      const { cluster, view } = get();
      const { runtimeHandlers = [] } = await cluster.nodeStatus();
      const isSupported = runtimeHandlers.some(({ name, features }) => !name && features?.userNamespaces === true);
      skip(!isSupported, 'the runtime of the node reports no support for user namespaces: it needs runc 1.2 or newer');
      await cluster.create(testTemplate(cluster, 'nics', [{ name: 'vf', config }]));
      await cluster.create(testPod(cluster, 'mapped', { claims, hostUsers: false }));
      await cluster.waitUntilRunning('mapped');
      const container = view('mapped');
      expect(await container.read('cat', '/proc/self/uid_map')).not.toMatch(/^\s*0\s+0\s/);
      const { devices } = await container.metadata('resourceclaimtemplates/nic', 'vf');
      const link = (await container.links()).find(({ ifname }) => ifname === 'net1');
      expect(devices[0]?.networkData).toEqual(expectedNetworkData(link));
    });

    it('a named claim is used by the next pod after its first pod is deleted', { tags: 'newest' }, async () => {
      const { cluster, view } = get();
      await cluster.create(testClaim(cluster, 'passed', [{ name: 'vf', config }]));
      const create = (name: string) =>
        cluster.create<V1Pod & KubernetesObject>(
          testPod(cluster, name, { claims: [{ name: 'nic', resourceClaimName: 'passed' }] }),
        );
      const address = async (pod: string) =>
        (await view(pod).metadata('resourceclaims/passed', 'vf')).devices[0]?.networkData?.ips;
      await create('first');
      await cluster.waitUntilRunning('first');
      expect(await address('first')).toEqual(['192.0.2.7/24']);

      // Reserved for both from now on. The kubelet prepares a claim only once, so it makes no call for the second pod.
      await create('second');
      const isRefused = async () =>
        (await cluster.events()).some(
          ({ regarding, note }) =>
            regarding.name === 'second' && note.includes('its devices are prepared for another pod'),
        );
      await cluster.until('the second pod waits for the claim', isRefused);
      expect(await address('first')).toEqual(['192.0.2.7/24']);
      await cluster.remove('Pod', 'first');
      await cluster.waitUntilRunning('second');
      expect(await address('second')).toEqual(['192.0.2.7/24']);
      expect((await view('second').links()).map(({ ifname }) => ifname)).toContain('net1');
    });
  });
}
