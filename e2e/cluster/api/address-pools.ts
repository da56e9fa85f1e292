import { beforeAll, describe, expect, it, vi } from 'vitest';
import { AddressAllocator, type AddressWish } from '../../../src/driver/addresses/index.ts';
import type { NetworkAddress, NetworkAddressLease } from '../../../src/driver/addresses/objects.ts';
import { explain } from '../../../src/lib/errors.ts';
import { buildClaim, buildPod } from '../../../test/doubles/objects.ts';
import type { ApiCluster, ApiUser } from './api-cluster.ts';

const root = '/apis/netdra.dev/v1alpha1';
const paths = {
  pools: `${root}/networkaddresspools`,
  addresses: `${root}/namespaces/default/networkaddresses`,
  leases: `${root}/networkaddressleases`,
};
const nodes = ['pool-a', 'pool-b', 'pool-c'];
const { signal } = new AbortController();
let cluster: ApiCluster;
let drivers: ApiUser[];

const pool = (name: string, spec: object) => ({
  apiVersion: 'netdra.dev/v1alpha1',
  kind: 'NetworkAddressPool',
  metadata: { name },
  spec,
});
/** The API server's answer to a pool that is not stored. */
const answer = (spec: object, name = 'checked') =>
  cluster.admin.client
    .request({
      method: 'POST',
      path: paths.pools,
      query: { dryRun: 'All', fieldValidation: 'Strict' },
      body: pool(name, spec),
    })
    .then(() => 'accepted', explain);

const forgedLease: NetworkAddressLease = {
  metadata: { name: 'forged.192.0.2.1' },
  spec: {
    pool: 'forged',
    address: '192.0.2.1',
    holder: { namespace: 'default', name: 'forged', uid: 'holder' },
    claim: { name: 'forged', uid: 'claim', request: 'vf' },
    pod: { name: 'forged', uid: 'pod' },
    node: '',
    renewals: 0,
  },
};
/** Returns the API server's answer to a write of a lease that names a node. The write is not stored. */
const answerToLease = ({ client }: ApiUser, method: 'POST' | 'PUT', lease: NetworkAddressLease, node: string) =>
  client
    .request({
      method,
      path: method === 'POST' ? paths.leases : `${paths.leases}/${lease.metadata.name}`,
      query: { dryRun: 'All' },
      body: {
        apiVersion: 'netdra.dev/v1alpha1',
        kind: 'NetworkAddressLease',
        ...lease,
        spec: { ...lease.spec, node },
      },
    })
    .then(() => 'accepted', explain);

/** A claim that is reserved for a pod, which wants the addresses of a key. */
async function wishOf(name: string, key: string, of: string): Promise<AddressWish> {
  const pod = buildPod(`${name}-pod`);
  const claim = buildClaim(name, { requests: [{ name: 'vf', devices: ['vf-0'] }], pods: [pod] });
  const { uid: _, ...metadata } = claim.metadata;
  const { metadata: created } = await cluster.createClaim({ ...claim, metadata } as typeof claim);
  return {
    namespace: 'default',
    claim: { name, uid: created.uid, request: 'vf' },
    pod: { name: pod.metadata.name, uid: pod.metadata.uid },
    pool: of,
    key,
    name: `${key}-${of}`,
  };
}

const allocatorOn = (index: number) => {
  const { client: kube, resources } = drivers[index] as ApiUser;
  return new AddressAllocator({ kube, resources, node: nodes[index] ?? '', random: Math.random });
};

/** @param get a cluster with the chart's objects, with address pools */
export function describeAddressPools(get: () => ApiCluster): void {
  describe('NetworkAddressPools', () => {
    beforeAll(async () => {
      cluster = get();
      drivers = await Promise.all(nodes.map((node) => cluster.driverOn(node)));
      const ranges = [{ network: '192.0.2.0/24' }];
      await vi.waitFor(async () => expect(await answer({ ranges })).toBe('accepted'), 20_000);
      const refused = () => answerToLease(drivers[0]!, 'POST', forgedLease, 'pool-b');
      await vi.waitFor(async () => expect(await refused()).toContain('may not write'), {
        timeout: 30_000,
        interval: 250,
      });
    });

    it.each<[string, object]>([
      ['spec.ranges: Required', {}],
      ['spec.ranges: Invalid value', { ranges: [] }],
      ['network: must be a network', { ranges: [{ network: '192.0.2.1/24' }] }],
      ['network: must be a network', { ranges: [{ network: '192.0.2.1' }] }],
      ['network: must be a network', { ranges: [{ network: '0.0.0.0/0' }] }],
      ...['ff02::/64', '127.0.0.0/8', '169.254.1.0/24', '255.255.255.255/32', '::1/128', 'fe80::/64'].map(
        (network): [string, object] => ['network: must be a network', { ranges: [{ network }] }],
      ),
      ['first: must be an address of', { ranges: [{ network: '192.0.2.0/24', first: '192.0.3.1' }] }],
      ['last: must be an address of', { ranges: [{ network: '192.0.2.0/24', last: '2001:db8::1' }] }],
      ['last: must be an address of', { ranges: [{ network: '192.0.2.0/24', last: 'x' }] }],
      ['spec.exclude: .*must be an address, or', { ranges: [{ network: '192.0.2.0/24' }], exclude: ['192.0.2.1/24'] }],
      ['unknown field "spec.gateway"', { ranges: [{ network: '192.0.2.0/24' }], gateway: '192.0.2.1' }],
    ])('are rejected by the API server with %s', async (message, spec) => {
      expect(await answer(spec)).toMatch(new RegExp(message));
    });

    it('are rejected if their name contains a dot, and accepted with ranges of both IP versions', async () => {
      const ranges = [{ network: '192.0.2.0/24', first: '192.0.2.9' }, { network: '2001:db8::/64' }];
      const spec = { ranges, exclude: ['192.0.2.10', '2001:db8::/120'] };
      expect(await answer(spec)).toBe('accepted');
      expect(await answer(spec, 'a.b')).toContain('the name must be lower case letters');
    });

    it('assign different addresses to claims prepared on three nodes at once, and report when no address is left', async () => {
      const range = { network: '198.51.100.0/24', first: '198.51.100.1', last: '198.51.100.12' };
      await cluster.create(pool('shared', { ranges: [range, { network: '2001:db8:51::/64' }] }));
      const wishes = await Promise.all(
        Array.from({ length: 12 }, (_, index) => wishOf(`many-${index}`, `key-${index}`, 'shared')),
      );
      const assign = async (wish: AddressWish, index: number) => {
        const node = allocatorOn(index % nodes.length);
        // As the kubelet: some find all addresses of the moment in use by attempts that another node then gives up.
        return await vi.waitFor(() => node.assign(wish, signal), { timeout: 60_000, interval: 100 });
      };
      const given = await Promise.all(wishes.map(assign));
      expect(new Set(given.flatMap(({ addresses }) => addresses)).size).toBe(24);
      expect(new Set(given.map(({ macAddress }) => macAddress)).size).toBe(12);
      const again = await Promise.all(wishes.map((wish, index) => allocatorOn((index + 1) % 3).assign(wish, signal)));
      expect(again).toEqual(given);
      await expect(allocatorOn(0).assign(await wishOf('late', 'late', 'shared'), signal)).rejects.toMatchObject({
        code: 'address-pool-unusable',
      });
    });

    it('assign the address of a key to one claim only, and to the next one once that claim is deleted', async () => {
      await cluster.create(pool('single', { ranges: [{ network: '203.0.113.0/24' }] }));
      const wishes = [await wishOf('twin-0', 'twin', 'single'), await wishOf('twin-1', 'twin', 'single')];
      const results = await Promise.allSettled(wishes.map((wish, index) => allocatorOn(index).assign(wish, signal)));
      const winner = results.findIndex(({ status }) => status === 'fulfilled');
      expect(results.filter(({ status }) => status === 'rejected')).toMatchObject([
        { reason: { code: 'address-held' } },
      ]);
      const [first, second] = [wishes[winner], wishes[1 - winner]] as [AddressWish, AddressWish];
      const path = `/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/${first.claim.name}`;
      const given = await allocatorOn(winner).assign(first, signal);
      await cluster.admin.client.request({ method: 'DELETE', path });
      expect(await allocatorOn(2).assign(second, signal)).toEqual(given);
    });

    it('keep the address of a prepared claim reserved even after its lease objects were deleted', async () => {
      const range = { network: '203.0.113.128/25', first: '203.0.113.200', last: '203.0.113.200' };
      await cluster.create(pool('kept', { ranges: [range] }));
      const wish = await wishOf('kept-0', 'kept', 'kept');
      const { addresses } = await allocatorOn(0).assign(wish, signal);
      const areLeased = () => allocatorOn(1).areLeased('kept', addresses, wish.claim.uid, signal);
      for (const path of [`${paths.leases}/kept.203.0.113.200`, `${paths.addresses}/${wish.name}`])
        await cluster.admin.client.request({ method: 'DELETE', path });
      expect(await areLeased()).toBe(false);
      await allocatorOn(0).renew(wish, addresses, signal);
      expect(await areLeased()).toBe(true);
      await expect(allocatorOn(2).assign(await wishOf('kept-1', 'other', 'kept'), signal)).rejects.toMatchObject({
        code: 'address-pool-unusable',
      });
    });

    it("let a driver's token write any lease, also one last used on another node, but only with its own node in it", async () => {
      await cluster.create(pool('bound', { ranges: [{ network: '203.0.113.0/28' }] }));
      const { addresses } = await allocatorOn(0).assign(await wishOf('bound', 'bound', 'bound'), signal);
      const name = `bound.${addresses[0]?.split('/')[0]}`;
      const request = { method: 'GET', path: `${paths.leases}/${name}` } as const;
      const stored = await cluster.admin.client.request<NetworkAddressLease>(request);
      expect(cluster.kubectl('get', 'nal', name)).toMatch(/ bound +bound-pod +pool-a /);
      const [own, other] = drivers as [ApiUser, ApiUser];
      const unbound = await cluster.driverOnNoNode();
      for (const [method, lease] of [
        ['POST', forgedLease],
        ['PUT', stored],
      ] as const) {
        expect(await answerToLease(own, method, lease, 'pool-a')).toBe('accepted');
        expect(await answerToLease(other, method, lease, 'pool-b')).toBe('accepted');
        const refusal = 'netdra on node pool-b may not write a NetworkAddressLease for node pool-a';
        expect(await answerToLease(other, method, lease, 'pool-a')).toContain(refusal);
        const noNode = 'the token of netdra is bound to no node';
        expect(await answerToLease(unbound, method, lease, 'pool-a')).toContain(noNode);
      }
    });

    it('forbid changing the spec of an assigned NetworkAddress, and forbid the driver to delete it', async () => {
      const path = `${paths.addresses}/twin-single`;
      const { client } = drivers[0] as ApiUser;
      const stored = await client.request<NetworkAddress>({ method: 'GET', path });
      const change = (spec: object) =>
        client.request({ method: 'PUT', path, body: { ...stored, spec: { ...stored.spec, ...spec } } }).catch(explain);
      expect(await change({ addresses: ['203.0.113.99/24'] })).toContain('addresses do not change');
      expect(await change({ macAddress: '02:00:00:00:00:01' })).toContain('macAddress does not change');
      expect(await change({ key: 'other' })).toContain('pool and key do not change');
      expect(await client.request({ method: 'DELETE', path }).catch(explain)).toContain('cannot delete resource');
      expect(cluster.kubectl('get', 'naddr', 'twin-single')).toContain(stored.spec.addresses?.[0]);
    });
  });
}
