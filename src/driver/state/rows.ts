import { parseDeviceKey } from '../../framework/metadata/index.ts';
import type { Attachment, StoredClaim, StoredDevice } from '../model/index.ts';

/** A row of a table, by the names of its columns. */
export type Row = Record<string, unknown>;

/** Converts a row to a claim without devices, which have a table of their own. */
export function toClaim({ uid, namespace, name, pod_uids, state, allocation }: Row): StoredClaim {
  return {
    identity: { uid: String(uid), namespace: String(namespace), name: String(name) },
    podUids: JSON.parse(String(pod_uids)),
    state: state as StoredClaim['state'],
    allocation: String(allocation),
    devices: [],
  };
}

export function toDevice({ device_key, data }: Row): StoredDevice {
  return { ...parseDeviceKey(String(device_key)), ...JSON.parse(String(data)) };
}

/** Returns the data of a device's row: everything except its key. */
export function dataOf(device: StoredDevice, attachment: Attachment | undefined): string {
  const { driver: _1, pool: _2, name: _3, shareId: _4, ...data } = device;
  return JSON.stringify({ ...data, attachment });
}
