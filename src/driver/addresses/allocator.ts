import { createHash } from 'node:crypto';
import type { OwnerReference } from '../../framework/kube/index.ts';
import { formatCidr, parseCidr } from '../../node/netlink/index.ts';
import { type AddressPoolSpec, networkAddressPoolSpec } from '../api/address-pool.ts';
import { DriverError } from '../model/index.ts';
import { Leases, type LeasesOptions, type Lessee, unlessChanged, unlessMissing } from './leases.ts';
import {
  addressPath,
  apiVersion,
  leaseName,
  type NetworkAddress,
  type NetworkAddressLease,
  pathOf,
} from './objects.ts';
import { families, PoolAddresses } from './ranges.ts';

/** Addresses that are tried before the leases of the pool are listed: enough for a pool that is half full. */
const mostGuesses = 8;
/** Addresses that are tried with the list. */
const mostListed = 16;
/** Attempts if other nodes change the same objects meanwhile. */
const mostAttempts = 4;

export interface AllocatorOptions extends LeasesOptions {
  /** Returns numbers from 0 up to 1. */
  random: () => number;
}

/** Who wants addresses: a key in the namespace of a claim, and the request that has it. */
export interface AddressWish {
  namespace: string;
  claim: { name: string; uid: string; request: string };
  pool: string;
  key: string;
  /** Name of the NetworkAddress. */
  name: string;
  /** Object with which the addresses are freed; absent: they stay. */
  owner?: OwnerReference | undefined;
}

export interface AssignedAddresses {
  /** With prefix length: one of each IP version that the pool has. */
  addresses: string[];
  macAddress: string;
}

/**
 * Assigns addresses of pools to keys, for all nodes: docs/decisions/0090-addresses-by-compare-and-set.md. A call that was cut off
 * anywhere is repeated by the next one for the key.
 */
export class AddressAllocator {
  readonly #options: AllocatorOptions;
  readonly #leases: Leases;

  constructor(options: AllocatorOptions) {
    this.#options = options;
    this.#leases = new Leases(options);
  }

  /**
   * Returns the addresses of a key, which the claim then uses.
   * @throws DriverError `address-pool-unusable`, `address-held`; KubeError
   */
  async assign(wish: AddressWish, signal: AbortSignal): Promise<AssignedAddresses> {
    for (let attempt = 0; attempt < mostAttempts; attempt++) {
      const found = await this.#find(wish, signal);
      if (found === undefined) continue;
      const { namespace, name, claim } = wish;
      const { uid = '' } = found.metadata;
      const lessee: Lessee = { claim, holder: { namespace, name, uid } };
      const assigned = await (found.spec.addresses === undefined
        ? this.#choose(wish, found, lessee, signal)
        : this.#confirm(wish, found.spec.addresses, lessee, signal));
      if (assigned === undefined) continue;
      return { addresses: assigned, macAddress: found.spec.macAddress ?? macOf(uid) };
    }
    throw held(wish, 'is being changed by other nodes', 'the kubelet tries again');
  }

  /** Returns the NetworkAddress of the key, which it creates; `undefined` if another node was faster. */
  async #find(wish: AddressWish, signal: AbortSignal): Promise<NetworkAddress | undefined> {
    const { kube } = this.#options;
    const { namespace, name, pool, key, owner } = wish;
    const found = await unlessMissing(
      kube.request<NetworkAddress>({ method: 'GET', path: addressPath(namespace, name), signal }),
    );
    if (found === undefined) {
      const metadata = { name, namespace, ...(owner && { ownerReferences: [owner] }) };
      const body = { apiVersion, kind: 'NetworkAddress', metadata, spec: { pool, key } };
      const path = addressPath(namespace);
      return await unlessChanged(kube.request<NetworkAddress>({ method: 'POST', path, body, signal }));
    }
    const { spec, metadata } = found;
    if (spec.pool !== pool || spec.key !== key) {
      throw held(wish, `is that of key ${spec.key} and pool ${spec.pool}`, 'delete it if nothing uses it');
    }
    const hint = 'wait until garbage collection has deleted it; the kubelet tries again';
    if (metadata.deletionTimestamp !== undefined) throw held(wish, 'is being deleted', hint);
    if (owner !== undefined && metadata.ownerReferences?.some(({ uid }) => uid === owner.uid) !== true) {
      throw held(wish, `does not belong to the present ${owner.kind} ${owner.name}`, hint);
    }
    return found;
  }

  /** Leases the recorded addresses. @returns whether it succeeded */
  async #confirm(wish: AddressWish, addresses: readonly string[], lessee: Lessee, signal: AbortSignal) {
    for (const cidr of addresses) {
      const result = await this.#leases.confirm(wish.pool, parseCidr(cidr).octets, lessee, signal);
      if (typeof result === 'object') throw inUse(wish, result);
      if (result === 'changed') return undefined;
    }
    return [...addresses];
  }

  /** Leases addresses and records them. @returns `undefined` if another node was faster */
  async #choose(wish: AddressWish, found: NetworkAddress, lessee: Lessee, signal: AbortSignal) {
    const spec = await this.#readPool(wish, signal);
    const addresses: string[] = [];
    for (const family of families) {
      const free = new PoolAddresses(spec, family);
      if (free.size > 0) addresses.push(await this.#leaseOne(wish, free, lessee, signal));
    }
    if (addresses.length === 0) throw unusable(wish, ' has no addresses', 'correct its ranges and exclusions');
    const path = addressPath(wish.namespace, wish.name);
    const body = { ...found, spec: { ...found.spec, addresses, macAddress: macOf(lessee.holder.uid) } };
    const written = await unlessChanged(this.#options.kube.request({ method: 'PUT', path, body, signal }));
    return written === undefined ? undefined : addresses;
  }

  /** @returns the address with its prefix length */
  async #leaseOne(wish: AddressWish, free: PoolAddresses, lessee: Lessee, signal: AbortSignal): Promise<string> {
    // The same order at each attempt, which so finds the lease of one that was cut off.
    const guess = (index: number) => hashOf(`${lessee.holder.uid} ${index}`).readUInt32BE() % free.size;
    const guesses = Array.from({ length: mostGuesses }, (_, index) => guess(index));
    const guessed = await this.#leaseFirst(wish, free, guesses, lessee, signal);
    if (guessed !== undefined) return guessed;
    const leases = await this.#leases.list(wish.pool, signal);
    const holders = new Map(leases.map(({ metadata, spec }) => [metadata.name, spec.holder.uid]));
    // Leases that may be free again are looked at from a new place at each attempt.
    const start = Math.floor(this.#options.random() * free.size);
    const rotated = Array.from({ length: free.size }, (_, step) => (start + step) % free.size);
    const order = Map.groupBy(rotated, (index) => {
      const uid = holders.get(leaseName(wish.pool, free.at(index).octets));
      return uid === undefined ? 'unknown' : uid === lessee.holder.uid ? 'own' : 'known';
    });
    const { own = [], unknown = [], known = [] } = Object.fromEntries(order);
    const listed = [...own, ...unknown, ...known].slice(0, mostListed);
    const found = await this.#leaseFirst(wish, free, listed, lessee, signal);
    if (found !== undefined) return found;
    const problem = `: ${leases.length} leases exist, and none of the ${listed.length} addresses that were tried is free`;
    throw unusable(wish, problem, 'add a range to the pool, or delete NetworkAddresses that nothing needs');
  }

  async #leaseFirst(
    wish: AddressWish,
    free: PoolAddresses,
    indexes: readonly number[],
    lessee: Lessee,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    for (const index of indexes) {
      const { octets, prefixLength } = free.at(index);
      const result = await this.#leases.lease(wish.pool, octets, lessee, signal);
      if (result === 'leased') return formatCidr(octets, prefixLength);
      if (result !== 'changed' && result.spec.holder.uid === lessee.holder.uid) throw inUse(wish, result);
    }
    return undefined;
  }

  /** @throws DriverError `address-pool-unusable` */
  async #readPool(wish: AddressWish, signal: AbortSignal): Promise<AddressPoolSpec> {
    const path = pathOf('networkaddresspools', wish.pool);
    const pool = await unlessMissing(this.#options.kube.request<{ spec?: unknown }>({ method: 'GET', path, signal }));
    if (pool === undefined) throw unusable(wish, ' does not exist', 'create it, or correct addressPool.name');
    const { data, error } = networkAddressPoolSpec.safeParse(pool.spec);
    if (data !== undefined) return data;
    const problems = error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ');
    throw unusable(wish, ` is invalid: ${problems}`, 'correct it; netdra validate checks it');
  }
}

/** Returns a unicast MAC address of local administration. The UID is the API server's: no tenant chooses the address. */
function macOf(uid: string): string {
  const [first = 0, ...others] = hashOf(`MAC ${uid}`).subarray(0, 6);
  return [(first & 0xfc) | 2, ...others].map((octet) => octet.toString(16).padStart(2, '0')).join(':');
}

function hashOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

function unusable(wish: AddressWish, problem: string, hint: string): DriverError {
  return failure('address-pool-unusable', wish, `NetworkAddressPool ${wish.pool}${problem}`, hint);
}

function held(wish: AddressWish, problem: string, hint: string): DriverError {
  return failure('address-held', wish, `NetworkAddress ${wish.namespace}/${wish.name} ${problem}`, hint);
}

function inUse(wish: AddressWish, { spec: { address, claim, node, holder } }: NetworkAddressLease): DriverError {
  const of = `${holder.namespace}/${claim.name}, request ${claim.request}, on node ${node}`;
  const hint = 'it passes on when that claim is deleted, or reserved for no pod; the kubelet tries again';
  return held(wish, `has address ${address}, which claim ${of}, uses`, hint);
}

function failure(
  code: 'address-pool-unusable' | 'address-held',
  { namespace, claim }: AddressWish,
  problem: string,
  hint: string,
): DriverError {
  const name = `${namespace}/${claim.name}`;
  const message = `claim ${name}: request ${claim.request} gets no address: ${problem}`;
  return new DriverError(code, message, { claim: name, retriable: true, hint });
}
