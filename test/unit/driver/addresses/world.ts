import { expect } from 'vitest';
import { AddressAllocator, type AddressWish } from '../../../../src/driver/addresses/index.ts';
import type { NetworkAddress, NetworkAddressLease } from '../../../../src/driver/addresses/objects.ts';
import type { AddressPoolSpec } from '../../../../src/driver/api/address-pool.ts';
import { type KubeRequest, type KubeRequests, ResourceApi } from '../../../../src/framework/kube/index.ts';
import { ObjectStore, resourceOf } from '../../../doubles/api-server-store.ts';
import { memoryKube, type RequestFate } from '../../../doubles/memory-kube.ts';

export const kinds = {
  pools: resourceOf('NetworkAddressPool'),
  addresses: resourceOf('NetworkAddress'),
  leases: resourceOf('NetworkAddressLease'),
  claims: resourceOf('ResourceClaim'),
  pods: resourceOf('Pod'),
};
export const namespace = 'apps';
export const { signal } = new AbortController();

/** The API server, and what its other users do there. */
export class World {
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
    const claim = { name, uid: metadata.uid, request: 'vf' };
    return { namespace, pool: 'lan', key, name: key, claim, pod: { name, uid: name }, ...more };
  }

  /** Reserves a claim for a pod again, or for none. */
  reserve(name: string, isReserved: boolean): void {
    const status = isReserved ? { reservedFor: [{ resource: 'pods', name, uid: name }] } : {};
    this.store.replace(kinds.claims, namespace, name, { metadata: { name }, status } as object);
  }

  loseLeases(): void {
    for (const { metadata } of this.leases) this.store.delete(kinds.leases, undefined, metadata.name ?? '');
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
