import type { StoredClaim, StoredDevice } from '../model/index.ts';

/** A row of a table, by the names of its columns. */
export type Row = Record<string, unknown>;

/** Without its devices, which have a table of their own. */
export function toClaim({ uid, namespace, name, pod_uids, state, allocation }: Row): StoredClaim {
  return {
    identity: { uid: String(uid), namespace: String(namespace), name: String(name) },
    podUids: JSON.parse(String(pod_uids)),
    state: state as StoredClaim['state'],
    allocation: String(allocation),
    devices: [],
  };
}

export function toDevice({ pci_address, data }: Row): StoredDevice {
  return { pciAddress: String(pci_address), ...JSON.parse(String(data)) };
}
