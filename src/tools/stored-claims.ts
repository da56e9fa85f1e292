import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { DriverError, type StoredClaim } from '../driver/index.ts';

/** Of a write that another process is at. */
const busyTimeoutMs = 2_000;

/**
 * What the driver's store has, read beside the running driver: readers of a store in WAL mode keep no writer waiting.
 * @param path of the database file; none: the driver has never run here, so there are no claims
 * @throws DriverError `store-unusable`
 */
export function readStoredClaims(path: string): StoredClaim[] {
  if (!existsSync(path)) return [];
  try {
    using database = new DatabaseSync(path, { readOnly: true, timeout: busyTimeoutMs });
    // One statement sees one moment.
    const rows = database
      .prepare(
        `SELECT uid, namespace, name, pod_uids, state, pci_address, data
         FROM claims LEFT JOIN devices ON claim_uid = uid ORDER BY namespace, name, devices.rowid`,
      )
      .all();
    const claims = new Map<string, StoredClaim>();
    for (const row of rows) {
      const [uid, namespace, name] = [String(row.uid), String(row.namespace), String(row.name)];
      const claim: StoredClaim = claims.get(uid) ?? {
        ...{ identity: { uid, namespace, name }, podUids: JSON.parse(String(row.pod_uids)) },
        ...{ state: row.state as StoredClaim['state'], devices: [] },
      };
      claims.set(uid, claim);
      if (row.pci_address !== null)
        claim.devices.push({ pciAddress: String(row.pci_address), ...JSON.parse(String(row.data)) });
    }
    return [...claims.values()];
  } catch (cause) {
    throw new DriverError('store-unusable', `state store ${path} cannot be read`, {
      cause,
      path,
      hint: 'run this as root, in the same version as the driver',
    });
  }
}
