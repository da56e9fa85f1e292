import type { ObjectMeta } from '../../framework/kube/index.ts';

export const apiVersion = 'netdra.dev/v1alpha1';

/** Label of NetworkAddresses and leases with the name of their pool. */
export const poolLabelKey = 'netdra.dev/pool';

/** The addresses of a key. Namespaced, so that garbage collection removes it with its owner. */
export interface NetworkAddress {
  metadata: ObjectMeta & { deletionTimestamp?: string };
  spec: {
    pool: string;
    /** Key of the addresses: `web-0/net/vf` for a StatefulSet's pod, or `addressPool.key` of a claim. */
    key: string;
    /** Addresses with prefix length. Absent until they are assigned; they never change afterwards. */
    addresses?: string[];
    macAddress?: string;
  };
}

/** One address that is or was assigned. The object is cluster-scoped, and its name is unique for pool and address. */
export interface NetworkAddressLease {
  metadata: ObjectMeta;
  spec: {
    pool: string;
    /** Address without prefix length. */
    address: string;
    /** NetworkAddress that the address belongs to. */
    holder: { namespace: string; name: string; uid: string };
    /** Claim that uses the address or was the last to use it, in the namespace of the holder. */
    claim: { name: string; uid: string; request: string };
    /** Pod that uses the claim. */
    pod: { name: string; uid: string };
    /** Node that the claim is prepared on. */
    node: string;
    /**
     * Number of renewals. It changes the object at each of them: the API server gives an unchanged object no new
     * `resourceVersion`.
     */
    renewals: number;
  };
}

/**
 * Returns the name of the lease of an address. Names of objects cannot contain colons, and each address must have exactly one
 * name.
 */
export function leaseName(pool: string, octets: Uint8Array): string {
  if (octets.length === 4) return `${pool}.${octets.join('.')}`;
  return `${pool}.${(Buffer.from(octets).toString('hex').match(/.{4}/g) ?? []).join('-')}`;
}

export function pathOf(kind: 'networkaddresspools' | 'networkaddressleases', name = ''): string {
  return `/apis/${apiVersion}/${kind}${name && `/${encodeURIComponent(name)}`}`;
}

/** Path of the NetworkAddresses of all namespaces. */
export const addressesPath = `/apis/${apiVersion}/networkaddresses`;

export function addressPath(namespace: string, name = ''): string {
  const path = `/apis/${apiVersion}/namespaces/${encodeURIComponent(namespace)}/networkaddresses`;
  return name === '' ? path : `${path}/${encodeURIComponent(name)}`;
}
