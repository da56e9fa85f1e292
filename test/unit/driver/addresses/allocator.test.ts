import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { AddressAllocator, type AddressWish } from '../../../../src/driver/addresses/index.ts';
import type { NetworkAddress, NetworkAddressLease } from '../../../../src/driver/addresses/objects.ts';
import type { AddressPoolSpec } from '../../../../src/driver/api/address-pool.ts';
import { type KubeRequest, type KubeRequests, ResourceApi } from '../../../../src/framework/kube/index.ts';
import { ObjectStore, resourceOf } from '../../../doubles/api-server-store.ts';
import { memoryKube, type RequestFate } from '../../../doubles/memory-kube.ts';

const kinds = {
  pools: resourceOf('NetworkAddressPool'),
  addresses: resourceOf('NetworkAddress'),
  leases: resourceOf('NetworkAddressLease'),
  claims: resourceOf('ResourceClaim'),
};
const both: AddressPoolSpec = { ranges: [{ network: '192.0.2.0/24' }, { network: '2001:db8::/64' }] };
/** Two addresses. */
const small: AddressPoolSpec = { ranges: [{ network: '192.0.2.0/30' }] };
const namespace = 'apps';
const { signal } = new AbortController();

/** The API server, and what its other users do there. */
class World {
  readonly store: ObjectStore;

  constructor(spec: AddressPoolSpec) {
    let uids = 0;
    this.store = new ObjectStore({ newUid: () => `uid-${++uids}` });
    this.store.create(kinds.pools, undefined, { metadata: { name: 'lan' }, spec } as object);
  }

  allocator(fateOf?: (request: KubeRequest) => Promise<RequestFate>, node = 'node-1'): AddressAllocator {
    const kube: KubeRequests = memoryKube(this.store, fateOf);
    return new AddressAllocator({ kube, resources: new ResourceApi(kube as never), node, random: () => 0.5 });
  }

  /** Creates a claim that is reserved for a pod, and returns its wish. */
  claim(name: string, key: string, more: Partial<AddressWish> = {}): AddressWish {
    const status = { reservedFor: [{ resource: 'pods', name, uid: name }] };
    const { metadata } = this.store.create(kinds.claims, namespace, { metadata: { name }, status } as object);
    return { namespace, pool: 'lan', key, name: key, claim: { name, uid: metadata.uid, request: 'vf' }, ...more };
  }

  end({ claim }: AddressWish): void {
    this.store.delete(kinds.claims, namespace, claim.name);
  }

  holder(name: string): NetworkAddress | undefined {
    return this.store.find(kinds.addresses, namespace, name) as NetworkAddress | undefined;
  }

  free(name: string): void {
    if (this.holder(name) !== undefined) this.store.delete(kinds.addresses, namespace, name);
  }

  /** Whoever has addresses keeps them, also while no pod uses them. */
  expectLeased(): void {
    const leases = new Map(this.leases.map(({ spec }) => [spec.address, spec.holder.uid]));
    for (const { metadata, spec } of this.store.list(kinds.addresses) as unknown as NetworkAddress[]) {
      for (const cidr of spec.addresses ?? []) expect(leases.get(cidr.split('/')[0] ?? '')).toBe(metadata.uid);
    }
  }

  get leases(): NetworkAddressLease[] {
    return this.store.list(kinds.leases) as unknown as NetworkAddressLease[];
  }
}

describe('AddressAllocator', () => {
  let world: World;
  let allocator: AddressAllocator;
  const assign = (wish: AddressWish, by = allocator) => by.assign(wish, signal);

  beforeEach(() => {
    world = new World(both);
    allocator = world.allocator();
  });

  it('gives a key an address of each IP version, which its next claim gets on another node', async () => {
    const first = world.claim('one', 'db');
    const given = await assign(first);
    expect(given.addresses).toEqual([
      expect.stringMatching(/^192\.0\.2\.\d+\/24$/),
      expect.stringMatching(/^2001:db8::[0-9a-f]+\/64$/),
    ]);
    expect(given.macAddress).toMatch(/^[0-9a-f][26ae](:[0-9a-f]{2}){5}$/);
    expect(world.holder('db')?.spec).toEqual({ pool: 'lan', key: 'db', ...given });
    expect(await assign(first)).toEqual(given);
    world.end(first);
    const second = world.claim('two', 'db');
    expect(await assign(second, world.allocator(undefined, 'node-2'))).toEqual(given);
    expect(world.leases.map(({ spec }) => [spec.claim.name, spec.node])).toEqual([
      ['two', 'node-2'],
      ['two', 'node-2'],
    ]);
  });

  it('sends four writes for a new key, and none for a claim that has its addresses', async () => {
    const writes: string[] = [];
    const count = world.allocator(async ({ method, path }) => {
      if (method !== 'GET') writes.push(`${method} ${path.split('/')[4]}`);
      return 'answered';
    });
    const wish = world.claim('one', 'db');
    await assign(wish, count);
    const leases = 'POST networkaddressleases';
    expect(writes).toEqual(['POST namespaces', leases, leases, 'PUT namespaces']);
    writes.length = 0;
    await assign(wish, count);
    expect(writes).toEqual([]);
  });

  it('makes a lease anew that someone has deleted', async () => {
    const wish = world.claim('one', 'db');
    await assign(wish);
    const before = world.leases.map(({ spec }) => spec);
    for (const { metadata } of world.leases) world.store.delete(kinds.leases, undefined, metadata.name ?? '');
    await assign(wish);
    expect(world.leases.map(({ spec }) => spec)).toEqual(before);
  });

  it('refuses a second claim while that of an earlier pod is reserved, and serves it when it is not', async () => {
    const first = world.claim('one', 'db');
    const given = await assign(first);
    const second = world.claim('two', 'db');
    await expect(assign(second)).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringMatching(
        /^claim apps\/two: request vf gets no address: NetworkAddress apps\/db has address 192\.0\.2\.\d+, which claim apps\/one, request vf, on node node-1, uses$/,
      ),
      retriable: true,
    });
    world.store.replace(kinds.claims, namespace, 'one', { metadata: { name: 'one' }, status: {} } as object);
    expect(await assign(second)).toEqual(given);
  });

  it('refuses a second request of the claim with the same key', async () => {
    const wish = world.claim('one', 'db');
    await assign(wish);
    const other = { ...wish, claim: { ...wish.claim, request: 'data' } };
    await expect(assign(other)).rejects.toMatchObject({ code: 'address-held' });
  });

  it('adds the owner, and waits until the address of an earlier one is deleted', async () => {
    const owner = { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'web', uid: 'set-1' };
    const first = world.claim('one', 'web-0/net/vf', { name: 'web-0', owner });
    await assign(first);
    expect(world.holder('web-0')?.metadata.ownerReferences).toEqual([owner]);
    world.end(first);
    const again = world.claim('two', 'web-0/net/vf', { name: 'web-0', owner: { ...owner, uid: 'set-2' } });
    await expect(assign(again)).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringContaining('NetworkAddress apps/web-0 does not belong to the present StatefulSet web'),
    });
    world.free('web-0');
    await assign(again);
    expect(world.holder('web-0')?.metadata.ownerReferences).toMatchObject([{ uid: 'set-2' }]);
  });

  it('does not take the NetworkAddress of another key or pool', async () => {
    await assign(world.claim('one', 'db'));
    await expect(assign(world.claim('two', 'other', { name: 'db' }))).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringContaining('NetworkAddress apps/db is that of key db and pool lan'),
    });
  });

  it('says which pool is missing, invalid, or has no free address', async () => {
    const wish = world.claim('one', 'db', { pool: 'wan' });
    const unusable = (text: string) => ({ code: 'address-pool-unusable', message: expect.stringContaining(text) });
    await expect(assign(wish)).rejects.toMatchObject(unusable('NetworkAddressPool wan does not exist'));
    world.store.create(kinds.pools, undefined, { metadata: { name: 'wan' }, spec: { ranges: [] } } as object);
    await expect(assign(wish)).rejects.toMatchObject(unusable('NetworkAddressPool wan is invalid: ranges: '));
    const spec = { ranges: [{ network: '192.0.2.1/32' }], exclude: ['192.0.2.0/24'] };
    world.store.replace(kinds.pools, undefined, 'wan', { metadata: { name: 'wan' }, spec } as object);
    await expect(assign(wish)).rejects.toMatchObject(unusable('NetworkAddressPool wan has no addresses'));
  });

  it('uses each address of a pool, and those again whose holder and claim are gone', async () => {
    world = new World(small);
    allocator = world.allocator();
    const wishes = ['one', 'two', 'three'].map((name) => world.claim(name, `key-${name}`));
    const [one, two, three] = wishes as [AddressWish, AddressWish, AddressWish];
    const given = [await assign(one), await assign(two)].map(({ addresses }) => addresses);
    expect(given.flat().toSorted()).toEqual(['192.0.2.1/30', '192.0.2.2/30']);
    const exhausted = {
      code: 'address-pool-unusable',
      message: expect.stringContaining('2 leases exist, and none of the 2 addresses that were tried is free'),
    };
    await expect(assign(three)).rejects.toMatchObject(exhausted);
    // Its pod may still run.
    world.free(one.name);
    await expect(assign(three)).rejects.toMatchObject(exhausted);
    world.end(two);
    await expect(assign(three)).rejects.toMatchObject(exhausted);
    world.end(one);
    expect((await assign(three)).addresses).toEqual(given[0]);
  });

  it('leaves a free lease to the node that was faster', async () => {
    const spec = { ranges: [{ network: '192.0.2.7/32' }] };
    world = new World(spec);
    const old = world.claim('old', 'key-old');
    await world.allocator().assign(old, signal);
    world.free(old.name);
    world.end(old);
    const [slow, fast] = ['slow', 'fast'].map((name) => world.claim(name, `key-${name}`)) as [AddressWish, AddressWish];
    const overtaken = world.allocator(async ({ method, path }) => {
      if (method === 'PUT' && path.includes('networkaddressleases')) await world.allocator().assign(fast, signal);
      return 'answered';
    });
    await expect(overtaken.assign(slow, signal)).rejects.toMatchObject({ code: 'address-pool-unusable' });
    expect(world.leases.map(({ spec }) => spec.claim.name)).toEqual(['fast']);
  });

  it('frees nothing while the API server does not answer about the holder, or the claim', async () => {
    world = new World(small);
    const wishes = ['one', 'two', 'three'].map((name) => world.claim(name, `key-${name}`));
    const [one, two, three] = wishes as [AddressWish, AddressWish, AddressWish];
    for (const each of [one, two]) await world.allocator().assign(each, signal);
    world.free(one.name);
    world.end(one);
    const before = world.leases;
    for (const silent of [/networkaddresses\/key-one/, /resourceclaims\/one/]) {
      const cut = world.allocator(async ({ path }) => (silent.test(path) ? 'refused' : 'answered'));
      await expect(cut.assign(three, signal)).rejects.toMatchObject({ code: 'api-unreachable' });
    }
    expect(world.leases).toEqual(before);
  });
});

const kindsOfSteps = ['start', 'start', 'end', 'free'] as const;
const steps = fc.array(fc.record({ kind: fc.constantFrom(...kindsOfSteps), key: fc.integer({ min: 0, max: 3 }) }), {
  minLength: 1,
  maxLength: 8,
});
/** 0 and most others: the request is answered. */
const fates = fc.array(fc.integer({ min: 0, max: 11 }), { minLength: 1, maxLength: 40 });

describe('AddressAllocators of several nodes', () => {
  it('never give an address to two claims, nor a key two addresses, whatever is lost meanwhile', () =>
    fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.array(steps, { minLength: 2, maxLength: 3 }),
        fates,
        async (s, nodes, drawn) => {
          const world = new World({
            ranges: [{ network: '192.0.2.0/29', last: '192.0.2.3' }, { network: '2001:db8::/126' }],
          });
          const cluster = new SharedCluster(world);
          let requests = 0;
          const fateOf = async (): Promise<RequestFate> => {
            await s.schedule(Promise.resolve());
            const number = drawn[requests++ % drawn.length];
            return number === 1 ? 'refused' : number === 2 ? 'lost' : 'answered';
          };
          const run = async (list: (typeof nodes)[number], index: number) => {
            const allocator = world.allocator(fateOf, `node-${index}`);
            for (const { kind, key } of list) await cluster[kind](`key-${key}`, allocator);
          };
          await s.waitFor(Promise.all(nodes.map(run)));
        },
      ),
      { numRuns: 100 },
    ));
});

/** Pods of several nodes, and the rules that hold for all of them. */
class SharedCluster {
  readonly #world: World;
  /** Claims that may be in a pod, with their addresses. */
  readonly #running = new Map<AddressWish, readonly string[]>();
  /** Of all NetworkAddresses, by UID. */
  readonly #given = new Map<string, unknown>();
  #count = 0;

  constructor(world: World) {
    this.#world = world;
  }

  async start(key: string, allocator: AddressAllocator): Promise<void> {
    const wish = this.#world.claim(`claim-${++this.#count}`, key);
    // As the kubelet: the same claim is prepared again.
    for (let attempt = 0; attempt < 2; attempt++) {
      const given = await allocator.assign(wish, signal).catch((error: { retriable?: boolean }) => {
        if (error.retriable !== true) throw error;
      });
      if (given === undefined) continue;
      const others = [...this.#running].flatMap(([other, addresses]) => (other === wish ? [] : addresses));
      expect(others.filter((address) => given.addresses.includes(address))).toEqual([]);
      this.#running.set(wish, given.addresses);
      this.#world.expectLeased();
      const { uid = '' } = this.#world.holder(key)?.metadata ?? {};
      if (uid !== '' && this.#world.holder(key)?.spec.macAddress === given.macAddress) {
        expect(given).toEqual(this.#given.get(uid) ?? given);
        this.#given.set(uid, given);
      }
      return;
    }
    // The pod is deleted before it has run.
    this.#world.end(wish);
  }

  async end(key: string): Promise<void> {
    const found = [...this.#running.keys()].find((wish) => wish.key === key);
    if (found === undefined) return;
    this.#running.delete(found);
    this.#world.end(found);
  }

  async free(key: string): Promise<void> {
    this.#world.free(key);
  }
}
