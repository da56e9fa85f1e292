import type { StoredClaim, StoredDevice } from './stored.ts';

export type Row = Record<string, unknown>;

/** The claim of a row of `claims`, without its devices. */
export function toClaim({ uid, namespace, name, pod_uids, state, allocation }: Row): StoredClaim {
  return {
    identity: { uid: String(uid), namespace: String(namespace), name: String(name) },
    podUids: JSON.parse(String(pod_uids)),
    state: state as StoredClaim['state'],
    ...(allocation === null || allocation === undefined ? {} : { allocation: String(allocation) }),
    devices: [],
  };
}

export function byName({ identity: one }: StoredClaim, { identity: other }: StoredClaim): number {
  const [a, b] = one.namespace === other.namespace ? [one.name, other.name] : [one.namespace, other.namespace];
  return a < b ? -1 : Number(a > b);
}

/** The device of a row of `devices` or `unrestored`. */
export function toDevice({ pci_address, data }: Row): StoredDevice {
  // Older versions stored network data beside the attachment, where it could be stale: it is read from the pod again.
  const { networkData: _old, ...device } = JSON.parse(String(data));
  return { pciAddress: String(pci_address), ...device };
}
