import { beforeEach, describe, expect, it } from 'vitest';
import type { AddressAllocator, AddressWish } from '../../../../src/driver/addresses/index.ts';
import { KubeError } from '../../../../src/framework/kube/index.ts';
import { kinds, namespace, signal, World } from './world.ts';

describe('AddressAllocator of a prepared claim', () => {
  let world: World;
  let allocator: AddressAllocator;
  const assign = (wish: AddressWish) => allocator.assign(wish, signal);
  const renew = (wish: AddressWish, addresses: string[]) => allocator.renew(wish, addresses, signal);
  const areLeased = ({ claim }: AddressWish, addresses: string[]) =>
    allocator.areLeased('lan', addresses, claim.uid, signal);

  beforeEach(() => {
    world = new World({ ranges: [{ network: '192.0.2.7/32' }] });
    allocator = world.allocator();
  });

  it('recreates lost leases even after all objects were deleted, so that no other key gets the addresses', async () => {
    world = new World({ ranges: [{ network: '192.0.2.7/32' }, { network: '2001:db8::7/128' }] });
    allocator = world.allocator();
    const wish = world.claim('one', 'db');
    const { addresses } = await assign(wish);
    expect(await areLeased(wish, addresses)).toBe(true);
    world.loseLeases();
    world.free('db');
    expect(await areLeased(wish, addresses)).toBe(false);
    await renew(wish, addresses);
    expect(await areLeased(wish, addresses)).toBe(true);
    const other = world.claim('two', 'other');
    await expect(assign(other)).rejects.toMatchObject({ code: 'address-pool-unusable' });
    // Its key is free, as whoever deleted it wanted, and so are the addresses when the pod has ended.
    expect(world.holder('db')).toBeUndefined();
    world.end(wish);
    expect((await assign(other)).addresses).toEqual(addresses);
  });

  it('recreates a lost lease if the NetworkAddress of the claim still has the address', async () => {
    const wish = world.claim('one', 'db');
    const { addresses } = await assign(wish);
    const before = world.leases.map(({ spec }) => spec);
    world.loseLeases();
    await renew(wish, addresses);
    expect(world.leases.map(({ spec }) => spec)).toEqual(before);
  });

  it('reserves the addresses of the claim for its next pod, even after the claim is deleted', async () => {
    const wish = world.claim('one', 'db');
    const { addresses } = await assign(wish);
    const pod = { name: 'next', uid: 'next' };
    world.store.create(kinds.pods, namespace, { metadata: pod, status: { phase: 'Running' } } as object);
    await renew({ ...wish, pod }, addresses);
    world.end(wish);
    world.free('db');
    await expect(assign(world.claim('two', 'other'))).rejects.toMatchObject({ code: 'address-pool-unusable' });
  });

  it('rejects a lost address that another NetworkAddress has taken meanwhile, and names that NetworkAddress', async () => {
    const wish = world.claim('one', 'db');
    const { addresses } = await assign(wish);
    world.loseLeases();
    world.free('db');
    const other = world.claim('two', 'other');
    await assign(other);
    expect(await areLeased(wish, addresses)).toBe(false);
    await expect(renew(wish, addresses)).rejects.toMatchObject({
      code: 'address-held',
      message: expect.stringContaining('has address 192.0.2.7, which is that of NetworkAddress apps/other'),
    });
    expect(await areLeased(other, addresses)).toBe(true);
  });

  it.each(['api-unserved', 'api-forbidden'] as const)(
    'creates no lease while the API server serves no address pools: %s',
    async (code) => {
      const wish = world.claim('one', 'db');
      const { addresses } = await assign(wish);
      world.loseLeases();
      allocator = world.allocator(async ({ path }) => {
        throw new KubeError(code, path);
      });
      await renew(wish, addresses);
      expect(await areLeased(wish, addresses)).toBe(true);
      expect(world.leases).toEqual([]);
    },
  );
});
