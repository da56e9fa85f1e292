import { createHash } from 'node:crypto';
import { type OwnerReference, unlessMissing } from '../../framework/kube/index.ts';
import { type AddressFamily, canonicalCidr, formatCidr, parseCidr } from '../../node/netlink/index.ts';
import { type AddressPoolSpec, networkAddressPoolSpec } from '../api/address-pool.ts';
import { isMacAddress } from '../api/text-checks.ts';
import { DriverError } from '../model/index.ts';
import { Leases, type LeasesOptions, type Lessee, listOfPool, unlessChanged, unlessOff } from './leases.ts';
import {
  addressesPath,
  addressPath,
  apiVersion,
  leaseName,
  type NetworkAddress,
  type NetworkAddressLease,
  pathOf,
  poolLabelKey,
} from './objects.ts';
import { families, numbersOf, type PoolAddress, PoolAddresses, rotate } from './ranges.ts';

/** Number of addresses without a NetworkAddress that are tried before the leases of the pool are listed. */
const mostGuesses = 4;
/** Number of addresses that are tried once the leases are listed. */
const mostListed = 16;
/** Number of attempts in all. An attempt fails if another node changes the same objects meanwhile. */
const mostAttempts = 4;
const anotherAddress = 'delete it, and its key gets another address';

export interface AllocatorOptions extends LeasesOptions {
  /** Returns numbers from 0 up to 1. */
  random: () => number;
}

/** A request for addresses: the key, the namespace and request of the claim, and its pod. */
export interface AddressWish {
  namespace: string;
  claim: { name: string; uid: string; request: string };
  /** The pod that uses the claim. */
  pod: { name: string; uid: string };
  pool: string;
  key: string;
  /** Name of the NetworkAddress. */
  name: string;
  /** Object whose deletion frees the addresses; absent: the addresses stay until the NetworkAddress is deleted. */
  owner?: OwnerReference | undefined;
}

/** Free addresses of one IP version, of which one is chosen. */
interface Choice {
  pool: PoolAddresses;
  /** Addresses that no NetworkAddress records; at least one. */
  free: PoolAddress[];
  /** UIDs of all NetworkAddresses of the pool. */
  present: ReadonlySet<string | undefined>;
}

export interface AssignedAddresses {
  /** Addresses with prefix length, one of each IP version that the pool has. */
  addresses: string[];
  macAddress: string;
}

/**
 * Assigns addresses of pools to keys, for all nodes: docs/decisions/0090-addresses-by-compare-and-set.md. If a call is cut
 * off at any point, the next call for the key completes its work.
 */
export class AddressAllocator {
  readonly #options: AllocatorOptions;
  readonly #leases: Leases;

  constructor(options: AllocatorOptions) {
    this.#options = options;
    this.#leases = new Leases(options);
  }

  /**
   * Returns the addresses of a key, for the claim to use.
   * @throws DriverError `address-pool-unusable`, `address-held`, `config-invalid`; KubeError
   */
  async assign(wish: AddressWish, signal: AbortSignal): Promise<AssignedAddresses> {
    for (let attempt = 0; attempt < mostAttempts; attempt++) {
      const found = await this.#find(wish, signal);
      if (found === undefined) continue;
      const { namespace, name, claim, pod } = wish;
      const { uid = '' } = found.metadata;
      const lessee: Lessee = { claim, pod, holder: { namespace, name, uid } };
      const { addresses } = found.spec;
      for (const cidr of addresses ?? []) checkNotation(wish, cidr, `NetworkAddress ${namespace}/${name}`);
      const check = (cidr: string) => this.#checkRecord(wish, found, cidr, signal);
      const assigned = await (addresses === undefined
        ? this.#choose(wish, found, lessee, signal)
        : this.#confirm(wish, addresses, lessee, check, signal));
      if (assigned === undefined) continue;
      return { addresses: assigned, macAddress: found.spec.macAddress ?? macOf(uid) };
    }
    throw held(wish, 'is being changed by other nodes', 'the kubelet tries again');
  }

  /**
   * Renews the leases of a prepared claim's addresses for its present pod, and creates lost leases again. Does not create a
   * lost NetworkAddress: whoever deletes it frees the key, while the lease protects the address as long as the pod has it.
   * Does nothing if the cluster has no address pools.
   * @throws DriverError `address-held`, `config-invalid`; KubeError
   */
  async renew(wish: AddressWish, addresses: readonly string[], signal: AbortSignal): Promise<void> {
    const { namespace, name, claim, pod } = wish;
    const path = addressPath(namespace, name);
    const renewAll = async () => {
      const found = await unlessMissing(this.#options.kube.request<NetworkAddress>({ method: 'GET', path, signal }));
      for (const cidr of addresses) {
        checkNotation(wish, cidr, `claim ${namespace}/${claim.name}`, ', then delete the pods of the claim');
        const isRecorded = found?.spec.addresses?.includes(cidr) === true;
        const holder = { namespace, name, uid: isRecorded ? (found.metadata.uid ?? '') : '' };
        const isOfClaim = async () => undefined;
        const renewed = await this.#confirm(wish, [cidr], { claim, pod, holder }, isOfClaim, signal);
        if (renewed === undefined) throw held(wish, 'is being changed by other nodes', 'netdra tries again');
      }
    };
    await unlessOff(renewAll());
  }

  /**
   * Returns whether the leases of all addresses name the claim; `true` if the cluster has no address pools. @throws KubeError
   */
  async areLeased(pool: string, addresses: readonly string[], claimUid: string, signal: AbortSignal): Promise<boolean> {
    const names = addresses.map((cidr) => leaseName(pool, parseCidr(cidr).octets));
    const leases = await unlessOff(Promise.all(names.map((name) => this.#leases.read(name, signal))));
    return leases?.every((lease) => lease?.spec.claim.uid === claimUid) ?? true;
  }

  /** Returns the NetworkAddress of the key; creates a missing one. `undefined` if another node was faster. */
  async #find(wish: AddressWish, signal: AbortSignal): Promise<NetworkAddress | undefined> {
    const { kube } = this.#options;
    const { namespace, name, pool, key, owner } = wish;
    const found = await unlessMissing(
      kube.request<NetworkAddress>({ method: 'GET', path: addressPath(namespace, name), signal }),
    );
    if (found === undefined) {
      const labels = { [poolLabelKey]: pool };
      const metadata = { name, namespace, labels, ...(owner && { ownerReferences: [owner] }) };
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
    const { ownerReferences: owners = [] } = metadata;
    if (owner === undefined || owners.some(({ uid }) => uid === owner.uid)) return found;
    if (owners.some(({ kind, name: of }) => kind === owner.kind && of === owner.name)) {
      const problem = `belongs to an earlier ${owner.kind} ${owner.name}`;
      throw held(wish, problem, 'wait until garbage collection has removed that owner; the kubelet tries again');
    }
    // Adds a lost reference: deleting an owner with --cascade=orphan removes it, as does garbage collection while others exist.
    const body = { ...found, metadata: { ...metadata, ownerReferences: [...owners, owner] } };
    const path = addressPath(namespace, name);
    return await unlessChanged(kube.request<NetworkAddress>({ method: 'PUT', path, body, signal }));
  }

  /**
   * Renews or creates the leases of known addresses.
   * @param check called for an address that has no lease
   * @returns the addresses; `undefined` if another node was faster
   */
  async #confirm(
    wish: AddressWish,
    addresses: readonly string[],
    lessee: Lessee,
    check: (cidr: string) => Promise<void>,
    signal: AbortSignal,
  ): Promise<string[] | undefined> {
    for (const cidr of addresses) {
      const { octets } = parseCidr(cidr);
      let result = await this.#leases.confirm(wish.pool, octets, lessee, signal);
      if (result === 'missing') {
        await check(cidr);
        result = await this.#leases.lease(wish.pool, octets, lessee, signal);
      }
      if (typeof result === 'object') throw inUse(wish, result, lessee);
      if (result === 'changed') return undefined;
    }
    return [...addresses];
  }

  /** Checks a recorded address without a lease: perhaps no driver wrote the record. @throws DriverError */
  async #checkRecord(wish: AddressWish, { spec }: NetworkAddress, cidr: string, signal: AbortSignal): Promise<void> {
    const pool = await this.#readPool(wish, signal);
    const address = parseCidr(cidr);
    if (!new PoolAddresses(pool, address.family).has(address))
      throw held(
        wish,
        `has ${cidr}, which is not in its pool, and no lease`,
        `add a range to the pool, or ${anotherAddress}`,
      );
    if (spec.macAddress !== undefined && !isMacAddress(spec.macAddress))
      throw held(wish, `has MAC ${spec.macAddress}, which is no unicast address, and no lease`, anotherAddress);
  }

  /** Leases free addresses and records them in the NetworkAddress. @returns `undefined` if another node was faster */
  async #choose(wish: AddressWish, found: NetworkAddress, lessee: Lessee, signal: AbortSignal) {
    const spec = await this.#readPool(wish, signal);
    const { kube } = this.#options;
    const all = await listOfPool<NetworkAddress>(kube, addressesPath, wish.pool, signal);
    // Both IP versions are checked before the first lease, which would stay if the other version had no free address.
    const choices = families.flatMap((family) => choiceOf(wish, new PoolAddresses(spec, family), family, all));
    if (choices.length === 0) throw unusable(wish, ' has no addresses', 'correct its ranges and exclusions');
    const addresses: string[] = [];
    for (const choice of choices) addresses.push(await this.#leaseOne(wish, choice, lessee, signal));
    const path = addressPath(wish.namespace, wish.name);
    const body = { ...found, spec: { ...found.spec, addresses, macAddress: macOf(lessee.holder.uid) } };
    const written = await unlessChanged(kube.request({ method: 'PUT', path, body, signal }));
    return written === undefined ? undefined : addresses;
  }

  /** Leases one address of a choice. @returns the address with its prefix length */
  async #leaseOne(wish: AddressWish, { pool, free, present }: Choice, lessee: Lessee, signal: AbortSignal) {
    // The order is the same at each attempt, whatever other keys do, so that it finds the lease of an earlier attempt.
    const position = hashOf(lessee.holder.uid).readUInt32BE() % pool.size;
    const start = Math.max(
      0,
      free.findIndex((address) => address.position >= position),
    );
    const guesses = rotate(free, start).slice(0, mostGuesses);
    const guessed = await this.#leaseFirst(wish, pool, guesses, lessee, signal);
    if (guessed !== undefined) return guessed;
    const leases = await this.#leases.list(wish.pool, signal);
    const leased = new Map(leases.map(({ metadata, spec }) => [metadata.name, spec.holder.uid]));
    // Leases that may be free again are tried from a random position at each attempt.
    const order = Map.groupBy(rotate(free, Math.floor(this.#options.random() * free.length)), (address) => {
      const uid = leased.get(leaseName(wish.pool, pool.toCidr(address).octets));
      if (uid === lessee.holder.uid) return 'own';
      return uid === undefined ? 'unknown' : present.has(uid) ? 'held' : 'left';
    });
    const { own = [], unknown = [], left = [], held: others = [] } = Object.fromEntries(order);
    const listed = [...own, ...unknown, ...left, ...others].slice(0, mostListed);
    const found = await this.#leaseFirst(wish, pool, listed, lessee, signal);
    if (found !== undefined) return found;
    const most = `NetworkAddresses have ${pool.size - free.length} of ${pool.size}`;
    const problem = ` has no free address: ${most}, and pods may still have those that were tried (${listed.length})`;
    throw unusable(
      wish,
      problem,
      'wait until the pods of deleted keys have ended, or add a range; the kubelet tries again',
    );
  }

  async #leaseFirst(
    wish: AddressWish,
    pool: PoolAddresses,
    addresses: readonly PoolAddress[],
    lessee: Lessee,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    for (const address of addresses) {
      const { octets, prefixLength } = pool.toCidr(address);
      const result = await this.#leases.lease(wish.pool, octets, lessee, signal);
      if (result === 'leased') return formatCidr(octets, prefixLength);
      if (result !== 'changed' && result.spec.holder.uid === lessee.holder.uid) throw inUse(wish, result, lessee);
    }
    return undefined;
  }

  /** Reads the pool of a wish. @throws DriverError `address-pool-unusable` */
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

/**
 * Returns the free addresses of an IP version; an empty list if the pool does not have the version. A recorded address is not
 * free, even if its lease is lost.
 * @throws DriverError `address-pool-unusable` if NetworkAddresses have all addresses
 */
function choiceOf(
  wish: AddressWish,
  pool: PoolAddresses,
  family: AddressFamily,
  all: readonly NetworkAddress[],
): Choice[] {
  if (pool.size === 0) return [];
  const recorded = all.flatMap(({ spec }) => spec.addresses ?? []);
  const free = pool.except(numbersOf(recorded, family));
  if (free.length === 0) {
    const problem = ` has no free address: NetworkAddresses have all of them (${pool.size})`;
    throw unusable(wish, problem, 'add a range to the pool, or delete NetworkAddresses that nothing needs');
  }
  return [{ pool, free, present: new Set(all.map(({ metadata }) => metadata.uid)) }];
}

/** Returns a locally administered unicast MAC address. The API server chooses the UID, so no tenant can choose the address. */
function macOf(uid: string): string {
  const [first = 0, ...others] = hashOf(`MAC ${uid}`).subarray(0, 6);
  return [(first & 0xfc) | 2, ...others].map((octet) => octet.toString(16).padStart(2, '0')).join(':');
}

function hashOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/** Refuses an address in another notation, since records are compared as texts. @param next what to do in the end */
function checkNotation(wish: AddressWish, cidr: string, subject: string, next = ''): void {
  const canonical = canonicalCidr(cidr);
  if (canonical === cidr) return;
  const hint = `write it as ${canonical} in NetworkAddress ${wish.namespace}/${wish.name}${next}`;
  throw failure('address-held', wish, `${subject} has ${cidr}, which must be written as ${canonical}`, hint);
}

function unusable(wish: AddressWish, problem: string, hint: string): DriverError {
  return failure('address-pool-unusable', wish, `NetworkAddressPool ${wish.pool}${problem}`, hint);
}

function held(wish: AddressWish, problem: string, hint: string): DriverError {
  return failure('address-held', wish, `NetworkAddress ${wish.namespace}/${wish.name} ${problem}`, hint);
}

function inUse(wish: AddressWish, { spec }: NetworkAddressLease, lessee: Lessee): DriverError {
  const { address, claim, node, holder, pod } = spec;
  if (holder.uid !== lessee.holder.uid) {
    const problem = `has address ${address}, which is that of NetworkAddress ${holder.namespace}/${holder.name}`;
    return held(wish, problem, 'delete one of the two when nothing uses it; its key then gets another address');
  }
  if (pod.uid === lessee.pod.uid) {
    const same = `request ${claim.request} of claim ${claim.name}, which is of the same pod, has addressPool.key ${wish.key}, too`;
    return failure('config-invalid', wish, same, 'use one key for each request');
  }
  const of = `${holder.namespace}/${claim.name}, request ${claim.request}, on node ${node}`;
  const hint =
    'it passes on when that claim is deleted, or reserved for no pod, and its pod has ended; the kubelet tries again';
  return held(wish, `has address ${address}, which claim ${of}, uses`, hint);
}

function failure(
  code: 'address-pool-unusable' | 'address-held' | 'config-invalid',
  { namespace, claim }: AddressWish,
  problem: string,
  hint: string,
): DriverError {
  const name = `${namespace}/${claim.name}`;
  const message = `claim ${name}: request ${claim.request} gets no address: ${problem}`;
  return new DriverError(code, message, { claim: name, retriable: code !== 'config-invalid', hint });
}
