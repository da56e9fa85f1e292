import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import type { AddressAllocator, AddressWish } from '../../../../src/driver/addresses/index.ts';
import type { AddressPoolSpec } from '../../../../src/driver/api/address-pool.ts';
import type { RequestFate } from '../../../doubles/memory-kube.ts';
import { kinds, namespace, signal, World } from './world.ts';

const both: AddressPoolSpec = { ranges: [{ network: '192.0.2.0/24' }, { network: '2001:db8::/64' }] };
/** Two addresses. */
const small: AddressPoolSpec = { ranges: [{ network: '192.0.2.0/30' }] };

describe('AddressAllocator', () => {
  let world: World;
  let allocator: AddressAllocator;
  const assign = (wish: AddressWish, by = allocator) => by.assign(wish, signal);

  beforeEach(() => {
    world = new World(both);
    allocator = world.allocator();
  });

  it('gives the next claim with the same key the same IPv4 and IPv6 addresses, even on another node', async () => {
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

  it('sends four requests to lease two addresses for a new key, and two to lease them again', async () => {
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
    expect(writes).toEqual(['PUT networkaddressleases', 'PUT networkaddressleases']);
  });

  it('recreates a deleted lease with the same addresses', async () => {
    const wish = world.claim('one', 'db');
    await assign(wish);
    const before = world.leases.map(({ spec }) => spec);
    world.loseLeases();
    await assign(wish);
    expect(world.leases.map(({ spec }) => spec)).toEqual(before);
  });

  it('rejects a second claim with the same key until the first claim is reserved for no pod', async () => {
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
    world.reserve('one', false);
    expect(await assign(second)).toEqual(given);
  });

  it('rejects two requests of one pod with the same key, and does not advise a retry', async () => {
    const wish = world.claim('one', 'db');
    await assign(wish);
    const others = [
      { ...wish, claim: { ...wish.claim, request: 'data' } },
      world.claim('two', 'db', { pod: wish.pod }),
    ];
    for (const other of others) {
      await expect(assign(other)).rejects.toMatchObject({
        code: 'config-invalid',
        retriable: false,
        message: expect.stringContaining(
          'request vf of claim one, which is of the same pod, has addressPool.key db, too',
        ),
        hint: expect.stringContaining('use one key for each request'),
      });
    }
  });

  it('does not reassign the addresses of a deleted claim while its pod may run', async () => {
    const first = world.claim('one', 'db');
    const given = await assign(first);
    // A tenant can delete a claim with its finalizer.
    world.end(first);
    const pod = { metadata: { name: 'one', uid: 'one' }, status: { phase: 'Running' } };
    world.store.create(kinds.pods, namespace, pod);
    const second = world.claim('two', 'db');
    await expect(assign(second)).rejects.toMatchObject({ code: 'address-held' });
    world.store.replace(kinds.pods, namespace, 'one', { ...pod, status: { phase: 'Failed' } } as object);
    expect(await assign(second)).toEqual(given);
    world.reserve('two', false);
    world.store.create(kinds.pods, namespace, { metadata: { name: 'two', uid: 'another' } });
    expect(await assign(world.claim('three', 'db'))).toEqual(given);
  });

  it('rejects a second claim with the key if the first claim is reserved again during the assignment', async () => {
    world = new World(small);
    allocator = world.allocator();
    const first = world.claim('one', 'db');
    const given = await assign(first);
    world.reserve('one', false);
    const second = world.claim('two', 'db');
    let again: unknown;
    const slow = world.allocator(async ({ method, path }) => {
      if (method === 'PUT' && path.includes('leases') && again === undefined) {
        world.reserve('one', true);
        again = await assign(first);
      }
      return 'answered';
    }, 'node-2');
    await expect(assign(second, slow)).rejects.toMatchObject({ code: 'address-held' });
    expect(again).toEqual(given);
  });

  it('updates the node in the leases when a claim moves to another node', async () => {
    const wish = world.claim('one', 'db');
    await assign(wish);
    await assign(wish, world.allocator(undefined, 'node-2'));
    expect(world.leases.map(({ spec }) => spec.node)).toEqual(['node-2', 'node-2']);
  });

  it('does not give the address of a lost lease to another key', async () => {
    world = new World({ ranges: [{ network: '192.0.2.7/32' }] });
    const first = world.claim('one', 'db');
    const given = await assign(first, world.allocator());
    world.loseLeases();
    await expect(assign(world.claim('two', 'other'), world.allocator())).rejects.toMatchObject({
      code: 'address-pool-unusable',
      message: expect.stringContaining(
        'NetworkAddressPool lan has no free address: NetworkAddresses have all of them (1)',
      ),
    });
    expect(await assign(first, world.allocator())).toEqual(given);
  });

  it('rejects a NetworkAddress with an address or MAC that its pool cannot assign, and creates no lease', async () => {
    const record = (name: string, spec: object) => {
      const labels = { 'netdra.dev/pool': 'lan' };
      world.store.create(kinds.addresses, namespace, {
        metadata: { name, labels },
        spec: { pool: 'lan', key: name, ...spec },
      } as object);
      return assign(world.claim(name, name));
    };
    const macAddress = '02:00:00:00:00:07';
    for (const addresses of [['198.51.100.7/24'], ['192.0.2.7/16'], ['2001:db8:1::7/64']]) {
      await expect(record(`from-${addresses}`.replace(/\W/g, '-'), { addresses, macAddress })).rejects.toMatchObject({
        code: 'address-held',
        message: expect.stringContaining(`has ${addresses}, which is not in its pool`),
      });
    }
    const bad = { addresses: ['192.0.2.7/24'], macAddress: '01:00:5e:00:00:07' };
    await expect(record('bad', bad)).rejects.toMatchObject({
      message: expect.stringContaining('has MAC 01:00:5e:00:00:07'),
    });
    const inCapitals = { addresses: ['2001:DB8::7/64'], macAddress };
    await expect(record('capitals', inCapitals)).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringContaining('has 2001:DB8::7/64, which must be written as 2001:db8::7/64'),
      hint: 'write it as 2001:db8::7/64 in NetworkAddress apps/capitals',
    });
    await expect(allocator.renew(world.claim('old', 'old'), inCapitals.addresses, signal)).rejects.toMatchObject({
      message: expect.stringContaining('gets no address: claim apps/old has 2001:DB8::7/64, which must be written as'),
      hint: 'write it as 2001:db8::7/64 in NetworkAddress apps/old, then delete the pods of the claim',
    });
    expect(world.leases).toEqual([]);
    expect(await record('good', { addresses: ['192.0.2.8/24'], macAddress })).toMatchObject({ macAddress });
  });

  it('rejects a NetworkAddress that contains an address of another NetworkAddress, and advises deleting one of them', async () => {
    const first = world.claim('one', 'db');
    const { addresses } = await assign(first);
    const spec = { pool: 'lan', key: 'copy', addresses, macAddress: '02:00:00:00:00:07' };
    world.store.create(kinds.addresses, namespace, { metadata: { name: 'copy' }, spec } as object);
    await expect(assign(world.claim('two', 'copy'))).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringMatching(
        /NetworkAddress apps\/copy has address 192.*, which is that of NetworkAddress apps\/db/,
      ),
      hint: expect.stringContaining('delete one of the two'),
    });
  });

  it("makes the StatefulSet the owner of the NetworkAddress, and waits for deletion of an earlier StatefulSet's NetworkAddress", async () => {
    const owner = { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'web', uid: 'set-1' };
    const first = world.claim('one', 'web-0/net/vf', { name: 'web-0', owner });
    await assign(first);
    expect(world.holder('web-0')?.metadata.ownerReferences).toEqual([owner]);
    world.end(first);
    const again = world.claim('two', 'web-0/net/vf', { name: 'web-0', owner: { ...owner, uid: 'set-2' } });
    await expect(assign(again)).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringContaining('NetworkAddress apps/web-0 belongs to an earlier StatefulSet web'),
    });
    world.free('web-0');
    await assign(again);
    expect(world.holder('web-0')?.metadata.ownerReferences).toMatchObject([{ uid: 'set-2' }]);
  });

  const application = { apiVersion: 'example.org/v1', kind: 'Application', name: 'web', uid: 'app-1' };
  it.each([
    ['lost its owner in a deletion with --cascade=orphan', []],
    ['garbage collection left to its other owner', [application]],
  ])('adopts the NetworkAddress that %s', async (_what, ownerReferences) => {
    const owner = { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'web', uid: 'set-1' };
    const first = world.claim('one', 'web-0/net/vf', { name: 'web-0', owner });
    const given = await assign(first);
    world.end(first);
    const { metadata, ...rest } = world.store.get(kinds.addresses, namespace, 'web-0');
    world.store.replace(kinds.addresses, namespace, 'web-0', {
      ...rest,
      metadata: { ...metadata, ownerReferences },
    } as object);
    const present = { ...owner, uid: 'set-2' };
    expect(await assign(world.claim('two', 'web-0/net/vf', { name: 'web-0', owner: present }))).toEqual(given);
    expect(world.holder('web-0')?.metadata.ownerReferences).toEqual([...ownerReferences, present]);
  });

  it('finds the only free address of a pool that was full', async () => {
    world = new World({ ranges: [{ network: '192.0.2.0/26' }] });
    const all = Array.from({ length: 62 }, (_, index) => world.claim(`claim-${index}`, `key-${index}`));
    const given: string[] = [];
    for (const wish of all) given.push(...(await assign(wish, world.allocator())).addresses);
    expect(new Set(given).size).toBe(62);
    for (const [index, wish] of all.entries()) {
      world.free(wish.name);
      world.end(wish);
      const next = await assign(world.claim(`next-${index}`, `next-${index}`), world.allocator());
      expect(next.addresses).toEqual([given[index]]);
    }
  });

  it('does not use a NetworkAddress that belongs to another key or pool', async () => {
    await assign(world.claim('one', 'db'));
    await expect(assign(world.claim('two', 'other', { name: 'db' }))).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringContaining('NetworkAddress apps/db is that of key db and pool lan'),
    });
  });

  it('names a pool that is missing, invalid or without a free address', async () => {
    const wish = world.claim('one', 'db', { pool: 'wan' });
    const unusable = (text: string) => ({ code: 'address-pool-unusable', message: expect.stringContaining(text) });
    await expect(assign(wish)).rejects.toMatchObject(unusable('NetworkAddressPool wan does not exist'));
    world.store.create(kinds.pools, undefined, { metadata: { name: 'wan' }, spec: { ranges: [] } } as object);
    await expect(assign(wish)).rejects.toMatchObject(unusable('NetworkAddressPool wan is invalid: ranges: '));
    const spec = { ranges: [{ network: '192.0.2.1/32' }], exclude: ['192.0.2.0/24'] };
    world.store.replace(kinds.pools, undefined, 'wan', { metadata: { name: 'wan' }, spec } as object);
    await expect(assign(wish)).rejects.toMatchObject(unusable('NetworkAddressPool wan has no addresses'));
  });

  it('assigns every address of a pool, and reuses an address only after its NetworkAddress and claim are deleted', async () => {
    world = new World(small);
    allocator = world.allocator();
    const wishes = ['one', 'two', 'three'].map((name) => world.claim(name, `key-${name}`));
    const [one, two, three] = wishes as [AddressWish, AddressWish, AddressWish];
    const given = [await assign(one), await assign(two)].map(({ addresses }) => addresses);
    expect(given.flat().toSorted()).toEqual(['192.0.2.1/30', '192.0.2.2/30']);
    const exhausted = (message: string) => ({
      code: 'address-pool-unusable',
      message: expect.stringContaining(message),
    });
    await expect(assign(three)).rejects.toMatchObject(exhausted('NetworkAddresses have all of them (2)'));
    // Its pod may still run.
    world.free(one.name);
    const used = exhausted('NetworkAddresses have 1 of 2, and pods may still have those that were tried (1)');
    await expect(assign(three)).rejects.toMatchObject(used);
    world.end(two);
    await expect(assign(three)).rejects.toMatchObject(used);
    world.end(one);
    expect((await assign(three)).addresses).toEqual(given[0]);
  });

  it('leases no address of one IP version while the pool has no free address of the other version', async () => {
    world = new World({ ranges: [{ network: '192.0.2.0/28' }, { network: '2001:db8::7/128' }] });
    await assign(world.claim('one', 'db'), world.allocator());
    const before = world.leases;
    const problem = 'NetworkAddresses have all of them (1)';
    for (const key of ['second', 'third']) {
      await expect(assign(world.claim(key, key), world.allocator())).rejects.toThrow(problem);
    }
    expect(world.leases).toEqual(before);
  });

  it('reuses the leases of an interrupted attempt, even if other keys got and released addresses meanwhile', async () => {
    const cut = world.allocator(async ({ method, path }) =>
      method === 'PUT' && path.includes('/networkaddresses/') ? 'refused' : 'answered',
    );
    const keys = ['a', 'b', 'c', 'd', 'e'].map((key) => world.claim(key, key));
    for (const wish of keys) await expect(assign(wish, cut)).rejects.toMatchObject({ code: 'api-unreachable' });
    const before = world.leases.map(({ spec }) => [spec.address, spec.claim.name]);
    expect(before).toHaveLength(10);
    const other = world.claim('other', 'other');
    const given = await assign(other);
    for (const wish of keys) {
      await assign(wish);
      world.free(other.name);
    }
    const others = given.addresses.map((cidr) => [cidr.split('/')[0], 'other']);
    expect(world.leases.map(({ spec }) => [spec.address, spec.claim.name]).toSorted()).toEqual(
      [...before, ...others].toSorted(),
    );
  });

  it('does not overwrite a free lease that another node takes first', async () => {
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

  it('reuses no address while the API server does not say whether its NetworkAddress or claim exists', async () => {
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
  it('never give two claims one address or one key two addresses, even if messages are lost', () =>
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
