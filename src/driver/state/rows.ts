import type { StoredClaim, StoredDevice } from './stored.ts';

/** A row of a table, by the names of its columns. */
export type Row = Record<string, unknown>;

/** Without its devices, which have a table of their own. */
export function toClaim({ uid, namespace, name, pod_uids, state, allocation }: Row): StoredClaim {
  return {
    identity: { uid: String(uid), namespace: String(namespace), name: String(name) },
    podUids: JSON.parse(String(pod_uids)),
    // An older version stores it so until it has laid the metadata down.
    state: state === 'configured' ? 'preparing' : (state as StoredClaim['state']),
    ...(typeof allocation === 'string' && { allocation }),
    devices: [],
  };
}

export function toDevice({ pci_address, data }: Row): StoredDevice {
  // Older versions stored network data with the VF, too: the claim's record has it.
  const { networkData: _older, attachment, ...device } = JSON.parse(String(data));
  const { networkData: _old, ...place } = attachment ?? {};
  return { pciAddress: String(pci_address), ...device, ...(attachment === undefined ? {} : { attachment: place }) };
}
