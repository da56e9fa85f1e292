import type { KubernetesObject, V1Pod } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import type { NetworkAddress, NetworkAddressLease } from '../../../src/driver/addresses/objects.ts';
import { expectedNetworkData } from '../../ip-link.ts';
import type { Cluster } from '../cluster.ts';
import type { GetCluster } from '../describe-cluster.ts';
import type { RealNode } from '../node/real-node.ts';
import { createPodWithClaim, testClass } from '../objects.ts';
import { startExample } from './examples.ts';

const pods = ['store-0', 'store-1', 'store-2'];
const settled = { timeout: 180_000, interval: 500 };

type NetworkData = { ips?: string[] | undefined; hardwareAddress?: string | undefined };

/** A pool whose name contains the namespace of the tests. */
function testPool({ namespace }: Cluster, spec: object): KubernetesObject & { spec: object } {
  return {
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'NetworkAddressPool',
    metadata: { name: `${namespace}-pool` },
    spec,
  };
}

/** Addresses of NetworkAddressPools, which StatefulSets' pods and keys keep. */
export function describeAddressPools(get: GetCluster, getNode: () => RealNode): void {
  describe('addresses of a pool', () => {
    /** What a running pod has, by its metadata, which is as iproute2 shows it. */
    async function dataOf(pod: string, claim: string): Promise<NetworkData> {
      const { cluster, view } = get();
      await cluster.waitUntilRunning(pod);
      const [document, links] = await Promise.all([view(pod).metadata(claim, 'vf'), view(pod).links()]);
      const data = expectedNetworkData(links.find(({ ifname }) => ifname === 'net1'));
      expect(document.devices.map(({ networkData }) => networkData)).toEqual([data]);
      return { ips: data.ips ?? [], hardwareAddress: data.hardwareAddress ?? '' };
    }

    const storesData = () => Promise.all(pods.map((pod) => dataOf(pod, 'resourceclaimtemplates/net')));
    const uids = async () => {
      const found = await get().cluster.list<V1Pod>('Pod');
      return found.filter(({ metadata }) => pods.includes(metadata.name)).map(({ metadata }) => metadata.uid);
    };
    const recorded = () => get().cluster.list<NetworkAddress>('NetworkAddress');

    it('stay with the pods of a StatefulSet when they are recreated, and become free when it is deleted', {
      timeout: 600_000,
    }, async ({ onTestFinished }) => {
      const { cluster } = get();
      onTestFinished(async () => {
        await cluster.remove('StatefulSet', 'store');
        await cluster.remove('DeviceClass', 'storage-network');
        await cluster.remove('NetworkAddressPool', 'storage');
      });
      await startExample(cluster, 'address-pool.yaml');
      const before = await storesData();
      expect(new Set(before.flatMap(({ ips = [] }) => ips)).size).toBe(6);
      expect(before.map(({ ips }) => ips)).toEqual(
        pods.map(() => [
          expect.stringMatching(/^198\.51\.100\.[1-9]\d\/24$/),
          expect.stringMatching(/^2001:db8:100::.*\/64$/),
        ]),
      );
      const addresses = await recorded();
      expect(
        addresses.map(({ spec }) => ({ ips: spec.addresses, hardwareAddress: spec.macAddress })).sort(byAddress),
      ).toEqual(before.toSorted(byAddress));
      expect(addresses.map(({ spec }) => spec.key).sort()).toEqual(pods.map((pod) => `${pod}/net/vf`));
      for (const gracePeriodSeconds of [1, 0]) {
        const old = await uids();
        await Promise.all(pods.map((pod) => cluster.remove('Pod', pod, gracePeriodSeconds)));
        await expect.poll(async () => (await uids()).filter((uid) => !old.includes(uid)).length, settled).toBe(3);
        expect(await storesData()).toEqual(before);
      }
      const shown = getNode().kubectl('get', 'naddr', '--namespace', cluster.namespace);
      for (const { ips = [], hardwareAddress = '' } of before) {
        for (const text of [...ips, hardwareAddress]) expect(shown).toContain(text);
      }
      await cluster.remove('StatefulSet', 'store');
      await expect.poll(recorded, settled).toEqual([]);
    });

    it('pass to another claim only when the claim that holds them and its pod are gone', { timeout: 600_000 }, async ({
      onTestFinished,
    }) => {
      const { cluster } = get();
      const range = { network: '192.0.2.0/24', first: '192.0.2.200', last: '192.0.2.200' };
      const pool = await cluster.create(testPool(cluster, { ranges: [range] }));
      const { metadata } = await cluster.create(
        testClass(cluster, 'pool', {
          driver: 'kernel',
          interfaceName: 'net1',
          addressPool: { name: pool.metadata.name },
          overridable: ['addressPool.key'],
        }),
      );
      onTestFinished(async () => {
        await cluster.remove('DeviceClass', metadata.name);
        await cluster.remove('NetworkAddressPool', pool.metadata.name);
      });
      const start = (name: string, key?: string) => {
        const config = key === undefined ? {} : { addressPool: { key } };
        return createPodWithClaim(cluster, name, [{ name: 'vf', deviceClassName: metadata.name, config }]);
      };
      const warnings = async (pod: string) => (await cluster.warningsOf([pod])).map(({ text }) => text).join('\n');
      const leases = async () =>
        (await cluster.list<NetworkAddressLease>('NetworkAddressLease'))
          .filter(({ spec }) => spec.pool === pool.metadata.name)
          .map(({ spec }) => [spec.address, spec.claim.name]);

      await start('one', 'db');
      const first = await dataOf('one', 'resourceclaims/one');
      expect(first.ips).toEqual(['192.0.2.200/24']);
      await start('two', 'db');
      await expect
        .poll(() => warnings('two'), settled)
        .toMatch(/has address 192\.0\.2\.200, which claim .*\/one, request vf,/);
      await start('three', 'other');
      await expect.poll(() => warnings('three'), settled).toContain('NetworkAddresses have all of them (1)');
      await start('four');
      await expect.poll(() => warnings('four'), settled).toContain('addressPool of request vf has no key');
      await cluster.removeWithClaims(['one', 'four']);
      expect(await dataOf('two', 'resourceclaims/two')).toEqual(first);
      expect(await leases()).toEqual([['192.0.2.200', 'two']]);
      await cluster.removeWithClaims(['two']);
      // Its key keeps the address until someone deletes the NetworkAddress.
      const [kept] = (await recorded()).filter(({ spec }) => spec.key === 'db');
      expect(kept?.spec.addresses).toEqual(first.ips);
      await cluster.remove('NetworkAddress', kept?.metadata.name ?? '');
      const third = await dataOf('three', 'resourceclaims/three');
      expect(third.ips).toEqual(first.ips);
      expect(third.hardwareAddress).not.toBe(first.hardwareAddress);
      expect(await leases()).toEqual([['192.0.2.200', 'three']]);
      await cluster.remove(
        'NetworkAddress',
        (await recorded()).find(({ spec }) => spec.key === 'other')?.metadata.name ?? '',
      );
    });
  });
}

function byAddress({ ips: [one = ''] = [] }: NetworkData, { ips: [other = ''] = [] }: NetworkData): number {
  return one < other ? -1 : 1;
}
