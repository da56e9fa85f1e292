import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { ResourceV1ResourceClaim, V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import type { ResourceClaim } from '../../../src/framework/kube/index.ts';
import { expectedNetworkData } from '../../ip-link.ts';
import type { CaseOptions, GetCluster } from '../describe-cluster.ts';
import { testClaim, testClass, testPod } from '../objects.ts';

/** The e2e tests that KEP-5304 requires, by their names there, and related ones. */
export function describeKep5304(get: GetCluster, { simulated }: CaseOptions): void {
  describe('KEP-5304', () => {
    it('Metadata file mounted, Correct content, CDI integration: the metadata matches `ip`, in its own read-only mount', async () => {
      const { cluster, view } = get();
      const macClass = testClass(cluster, 'mac', { macAddress: '02:11:22:33:44:55' });
      await cluster.create(macClass);
      await using _ = { [Symbol.asyncDispose]: () => cluster.remove('DeviceClass', macClass.metadata?.name ?? '') };
      const config = {
        interfaceName: 'net1',
        mtu: 1400,
        addresses: ['192.0.2.10/24', '2001:DB8:0::10/64'],
        routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.1' }],
      };
      const deviceClassName = macClass.metadata?.name ?? '';
      const claim = await cluster.create(testClaim(cluster, 'fast-net', [{ name: 'vf', deviceClassName, config }]));
      await cluster.create(testPod(cluster, 'one-vf', { claims: [{ name: 'nic', resourceClaimName: 'fast-net' }] }));
      await cluster.waitUntilRunning('one-vf');
      const container = view('one-vf');

      const document = await container.metadata('resourceclaims/fast-net', 'vf');
      const identity = { name: 'fast-net', namespace: cluster.namespace, uid: claim.metadata.uid };
      expect(document).toMatchObject({ generation: 1, request: 'vf', claim: identity });
      const [device] = document.devices;
      const link = (await container.links()).find(({ ifname }) => ifname === 'net1');
      expect(device?.networkData).toEqual(expectedNetworkData(link));
      expect(device?.networkData).toEqual({
        interfaceName: 'net1',
        hardwareAddress: '02:11:22:33:44:55',
        ips: ['192.0.2.10/24', '2001:db8::10/64'],
      });
      expect(device).toMatchObject({
        driver: cluster.target.driver,
        attributes: { mtu: { int: link?.mtu }, ...(simulated ? { simulated: { bool: true } } : {}) },
      });
      const offered = (await cluster.devices()).find(({ name }) => name === device?.name);
      const busId = 'resource.kubernetes.io/pciBusID';
      expect(device?.attributes?.[busId]).toEqual(offered?.attributes?.[busId]);
      expect((await container.read('ip', 'route')).split('\n')).toContainEqual(
        expect.stringMatching(/^198\.51\.100\.0\/24 via 192\.0\.2\.1 dev net1/),
      );

      // The layout of the KEP's text has the same data at another path.
      const kep = JSON.parse(await container.read('cat', container.kepPath('fast-net', 'vf')));
      expect(kep).toMatchObject({ kind: expect.any(String), apiVersion: expect.any(String), metadata: identity });
      expect(kep.requests[0].devices[0].networkData).toMatchObject({
        ips: device?.networkData?.ips,
        hardwareAddress: device?.networkData?.hardwareAddress,
      });

      const path = container.metadataPath('resourceclaims/fast-net', 'vf');
      const mounts = (await container.read('cat', '/proc/self/mountinfo')).split('\n').map((line) => line.split(' '));
      // Below /run, where /var/run is a link to it.
      const options = mounts.find((each) => path.endsWith(each[4] ?? '') && (each[4] ?? '').endsWith('.json'))?.[5];
      expect(options?.split(',')).toContain('ro');
      expect((await container.exec('sh', '-c', `echo x > ${path}`)).exitCode).not.toBe(0);
      expect(await container.metadata('resourceclaims/fast-net', 'vf')).toEqual(document);

      // The claim's status follows a moment later.
      const devices = async () => (await cluster.find<ResourceClaim>('ResourceClaim', 'fast-net'))?.status?.devices;
      await expect.poll(devices, { timeout: 20_000, interval: 250 }).toMatchObject([
        {
          driver: cluster.target.driver,
          device: device?.name,
          networkData: device?.networkData,
          conditions: [{ type: 'Ready', status: 'True', reason: 'Attached' }],
        },
      ]);
    });

    it('Per-request isolation: a container sees only its own requests, and no metadata without a claim', async () => {
      const { cluster, view } = get();
      const config = (address: string) => ({ addresses: [address] });
      const requests = [
        { name: 'left', config: config('192.0.2.1/24') },
        { name: 'right', config: config('192.0.2.2/24') },
      ];
      await cluster.create(testClaim(cluster, 'two', requests));
      const containers = [
        { name: 'both', claims: [{ name: 'nics' }] },
        { name: 'left', claims: [{ name: 'nics', request: 'left' }] },
        { name: 'right', claims: [{ name: 'nics', request: 'right' }] },
        { name: 'none', claims: [] },
      ];
      const claims = [{ name: 'nics', resourceClaimName: 'two' }];
      await cluster.create(testPod(cluster, 'isolated', { claims, containers }));
      await cluster.waitUntilRunning('isolated');
      const seen = async (name: string) => await view('isolated', name).metadataFiles();
      const { metadataPath, kepPath } = pathsIn(view('isolated'), 'two');
      const paths = (request: string) => [kepPath(request), metadataPath(request)];
      expect(await seen('both')).toEqual([...paths('left'), ...paths('right')].sort());
      expect(await seen('left')).toEqual(paths('left'));
      expect(await seen('right')).toEqual(paths('right'));
      expect(await seen('none')).toEqual([]);
    });

    it('Multi-device request: one claim gets three VFs, by three requests or by one', { tags: 'newest' }, async () => {
      const { cluster, view } = get();
      const config = (index: number) => ({ interfaceName: `net${index}`, addresses: [`192.0.2.${index + 1}/24`] });
      const each = [0, 1, 2].map((index) => ({ name: `vf-${index}`, config: config(index) }));
      await cluster.create(testClaim(cluster, 'each', each));
      await cluster.create(testClaim(cluster, 'all', [{ name: 'vfs', count: 3, config: { interfaceName: 'data%d' } }]));
      const claims = ['each', 'all'].map((name) => ({ name, resourceClaimName: name }));
      await cluster.create(testPod(cluster, 'six-vfs', { claims }));
      await cluster.waitUntilRunning('six-vfs');
      const container = view('six-vfs');
      const linkOf = async (name: string) => (await container.links()).find(({ ifname }) => ifname === name);
      for (const index of [0, 1, 2]) {
        const { devices } = await container.metadata('resourceclaims/each', `vf-${index}`);
        expect(devices.map(({ networkData }) => networkData)).toEqual([
          expectedNetworkData(await linkOf(`net${index}`)),
        ]);
      }
      const names = ['data0', 'data1', 'data2'];
      const networkData = async () =>
        (await container.metadata('resourceclaims/all', 'vfs')).devices.map(({ networkData }) => networkData);
      expect((await networkData()).map((data) => data?.interfaceName)).toEqual(names);
      // They have only the link-local address, which the kernel checks for a second or two: it follows as an update.
      const isSo = async () => {
        const expected = [];
        for (const name of names) expected.push(expectedNetworkData(await linkOf(name)));
        return isDeepStrictEqual(await networkData(), expected);
      };
      await expect.poll(isSo, { timeout: 20_000, interval: 250 }).toBe(true);
      if (simulated) expect((await container.metadata('resourceclaims/all', 'vfs')).generation).toBeGreaterThan(1);
    });

    it('Cleanup on delete: files and CDI specs are removed from the node, and the VF can be allocated again', {
      tags: 'newest',
    }, async () => {
      const { cluster, nodeFiles } = get();
      const name = `gone-${randomUUID().slice(0, 5)}`;
      const claim = await cluster.create(testClaim(cluster, name, [{ name: 'vf' }]));
      const pod = testPod(cluster, name, { claims: [{ name: 'nic', resourceClaimName: name }] });
      const before = await nodeFiles.simulatedVfs();
      for (const _ of ['once', 'and again']) {
        await cluster.create<V1Pod>(pod);
        await cluster.waitUntilRunning(name);
        expect((await nodeFiles.ofClaim(claim)).length).toBeGreaterThanOrEqual(2);
        if (simulated) expect(await nodeFiles.simulatedVfs()).toHaveLength(before.length - 1);
        await cluster.remove('Pod', name);
        await expect.poll(() => nodeFiles.ofClaim(claim), { timeout: 60_000, interval: 250 }).toEqual([]);
        await expect.poll(() => nodeFiles.simulatedVfs(), { timeout: 20_000, interval: 250 }).toEqual(before);
      }
      const devices = async () =>
        (await cluster.find<ResourceV1ResourceClaim>('ResourceClaim', name))?.status?.devices ?? [];
      await expect.poll(devices, { timeout: 20_000, interval: 250 }).toEqual([]);
    });
  });
}

function pathsIn(container: ReturnType<ReturnType<GetCluster>['view']>, claim: string) {
  return {
    metadataPath: (request: string) => container.metadataPath(`resourceclaims/${claim}`, request),
    kepPath: (request: string) => container.kepPath(claim, request),
  };
}
