import {
  type KubeList,
  type KubeRequests,
  listAll,
  type ResourceApi,
  unless,
  unlessMissing,
} from '../../framework/kube/index.ts';
import { formatIpAddress } from '../../node/netlink/index.ts';
import {
  addressPath,
  apiVersion,
  leaseName,
  type NetworkAddress,
  type NetworkAddressLease,
  pathOf,
  poolLabelKey,
} from './objects.ts';

/** Phases in which the containers of a pod have ended for good. Source: core/v1 `PodPhase`. */
const terminalPhases = ['Succeeded', 'Failed'];

export interface LeasesOptions {
  kube: KubeRequests;
  resources: { readClaim: ResourceApi['readClaim']; readPod: ResourceApi['readPod'] };
  /** Name of this node. */
  node: string;
}

/** A lease's holder: a NetworkAddress, the request of a claim in its namespace, and the pod of that claim. */
export interface Lessee {
  holder: NetworkAddressLease['spec']['holder'];
  claim: NetworkAddressLease['spec']['claim'];
  pod: NetworkAddressLease['spec']['pod'];
}

/**
 * Result of an attempt: `leased`; `changed` if another node was faster and the next attempt may succeed; or the lease that is
 * in use, of another holder or of another claim of the same holder.
 */
export type LeaseResult = 'leased' | 'changed' | NetworkAddressLease;

/** Reads and writes leases of addresses. Each write fails if the lease has changed since it was read. */
export class Leases {
  readonly #options: LeasesOptions;

  constructor(options: LeasesOptions) {
    this.#options = options;
  }

  /** Renews the lease of an address for its holder. @returns `missing` if the lease does not exist @throws KubeError */
  async confirm(
    pool: string,
    octets: Uint8Array,
    lessee: Lessee,
    signal: AbortSignal,
  ): Promise<LeaseResult | 'missing'> {
    const known = await this.read(leaseName(pool, octets), signal);
    return known === undefined ? 'missing' : await this.#renew(known, lessee, signal);
  }

  /** Leases an address that may be free. @throws KubeError */
  async lease(pool: string, octets: Uint8Array, lessee: Lessee, signal: AbortSignal): Promise<LeaseResult> {
    const { kube, node } = this.#options;
    const name = leaseName(pool, octets);
    const address = formatIpAddress(octets);
    const spec: NetworkAddressLease['spec'] = { pool, address, node, renewals: 0, ...lessee };
    const metadata = { name, labels: { [poolLabelKey]: pool } };
    const body = { apiVersion, kind: 'NetworkAddressLease', metadata, spec };
    const path = pathOf('networkaddressleases');
    const created = await unlessChanged(kube.request({ method: 'POST', path, body, signal }));
    if (created !== undefined) return 'leased';
    const known = await this.read(name, signal);
    return known === undefined ? 'changed' : await this.#renew(known, lessee, signal);
  }

  /** Returns all leases of a pool. @throws KubeError */
  async list(pool: string, signal: AbortSignal): Promise<NetworkAddressLease[]> {
    return await listOfPool(this.#options.kube, pathOf('networkaddressleases'), pool, signal);
  }

  /** Returns the lease with a name. @throws KubeError */
  async read(name: string, signal: AbortSignal): Promise<NetworkAddressLease | undefined> {
    const path = pathOf('networkaddressleases', name);
    return await unlessMissing(this.#options.kube.request<NetworkAddressLease>({ method: 'GET', path, signal }));
  }

  /**
   * Takes over or renews a lease, unless it is in use. Writes the lease even if nothing changes: a write by another node,
   * which found the claim unused before, then fails.
   */
  async #renew(known: NetworkAddressLease, lessee: Lessee, signal: AbortSignal): Promise<LeaseResult> {
    const { kube, node } = this.#options;
    const isOwn = known.spec.holder.uid === lessee.holder.uid;
    if (!isOwn && !(await this.#isReleased(known, signal))) return known;
    if (!isSameClaim(known, lessee) && (await this.#isUsed(known, lessee, signal))) return known;
    const body = { ...known, spec: { ...known.spec, node, renewals: known.spec.renewals + 1, ...lessee } };
    const path = pathOf('networkaddressleases', known.metadata.name);
    const renewed = await unlessChanged(kube.request({ method: 'PUT', path, body, signal }));
    return renewed === undefined ? 'changed' : 'leased';
  }

  /**
   * Returns whether the holder is deleted or records other addresses. The latter happens when two nodes chose addresses for
   * the holder and the other node was faster.
   */
  async #isReleased({ spec: { address, holder } }: NetworkAddressLease, signal: AbortSignal): Promise<boolean> {
    const path = addressPath(holder.namespace, holder.name);
    const found = await unlessMissing(this.#options.kube.request<NetworkAddress>({ method: 'GET', path, signal }));
    if (found?.metadata.uid !== holder.uid) return true;
    const { addresses } = found.spec;
    return addresses !== undefined && !addresses.some((cidr) => cidr.split('/')[0] === address);
  }

  /**
   * Returns whether a pod may still use the claim of a lease: the claim is reserved, or its pod runs although the claim is
   * gone.
   */
  async #isUsed({ spec: { holder, claim, pod } }: NetworkAddressLease, lessee: Lessee, signal: AbortSignal) {
    const { resources } = this.#options;
    const found = await unlessMissing(resources.readClaim(holder.namespace, claim.name, signal));
    if (found?.metadata?.uid === claim.uid && (found.status?.reservedFor ?? []).length > 0) return true;
    if (pod.uid === lessee.pod.uid) return false;
    const running = await unlessMissing(resources.readPod(holder.namespace, pod.name, signal));
    return running?.metadata?.uid === pod.uid && !terminalPhases.includes(running.status?.phase ?? '');
  }
}

function isSameClaim({ spec: { holder, claim } }: NetworkAddressLease, lessee: Lessee): boolean {
  const isOfClaim = claim.uid === lessee.claim.uid && claim.request === lessee.claim.request;
  return isOfClaim && holder.namespace === lessee.holder.namespace;
}

/** Returns all objects of a kind that have the label of a pool. @throws KubeError */
export async function listOfPool<T>(kube: KubeRequests, path: string, pool: string, signal: AbortSignal): Promise<T[]> {
  return await listAll((page) => {
    const query = { labelSelector: `${poolLabelKey}=${pool}`, ...page };
    return kube.request<KubeList<T>>({ method: 'GET', path, query, signal });
  });
}

/** Returns `undefined` if the object exists already, was deleted, or has changed since it was read. @throws KubeError */
export async function unlessChanged<T>(write: Promise<T>): Promise<T | undefined> {
  return await unless(write, 'api-conflict', 'api-not-found');
}

/**
 * Returns `undefined` if address pools are off (`addressPools.enabled` of the chart is false): the API server does not serve
 * them, or the driver may not use them. @throws KubeError
 */
export async function unlessOff<T>(work: Promise<T>): Promise<T | undefined> {
  return await unless(work, 'api-unserved', 'api-forbidden');
}
