import type { ObjectMeta } from '../../framework/kube/index.ts';

export const apiVersion = 'netdra.dev/v1alpha1';

/** Label of NetworkAddresses and leases: the name of their pool. */
export const poolLabelKey = 'netdra.dev/pool';

/** The addresses of a key. Namespaced, so that garbage collection removes it with its owner. */
export interface NetworkAddress {
  metadata: ObjectMeta & { deletionTimestamp?: string };
  spec: {
    pool: string;
    /** What keeps the addresses: `web-0/net/vf` of a StatefulSet's pod, or the `key` of a claim. */
    key: string;
    /** With prefix length. Absent: not assigned yet; never changes afterwards. */
    addresses?: string[];
    macAddress?: string;
  };
}

/** One address that is, or was, assigned. Cluster-scoped: its name is unique for pool and address. */
export interface NetworkAddressLease {
  metadata: ObjectMeta;
  spec: {
    pool: string;
    /** Without prefix length. */
    address: string;
    /** The NetworkAddress that has it. */
    holder: { namespace: string; name: string; uid: string };
    /** The claim that uses it, or was the last to do so, in the namespace of the holder. */
    claim: { name: string; uid: string; request: string };
    /** The pod that has that claim. */
    pod: { name: string; uid: string };
    /** Node of that claim. */
    node: string;
    /** Counts the confirmations, since the API server gives an unchanged object no new `resourceVersion`. */
    renewals: number;
  };
}

/** Returns the name of an address's lease. Names of objects have no colons, and each address has one name. */
export function leaseName(pool: string, octets: Uint8Array): string {
  if (octets.length === 4) return `${pool}.${octets.join('.')}`;
  return `${pool}.${(Buffer.from(octets).toString('hex').match(/.{4}/g) ?? []).join('-')}`;
}

export function pathOf(kind: 'networkaddresspools' | 'networkaddressleases', name = ''): string {
  return `/apis/${apiVersion}/${kind}${name && `/${encodeURIComponent(name)}`}`;
}

/** NetworkAddresses of all namespaces. */
export const addressesPath = `/apis/${apiVersion}/networkaddresses`;

export function addressPath(namespace: string, name = ''): string {
  const path = `/apis/${apiVersion}/namespaces/${encodeURIComponent(namespace)}/networkaddresses`;
  return name === '' ? path : `${path}/${encodeURIComponent(name)}`;
}
