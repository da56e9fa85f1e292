import { existsSync } from 'node:fs';
import { Store, type StoredClaim } from '../../driver/state/index.ts';

/**
 * Reads the driver's store beside the running driver.
 * @param path of the database file; if it is missing, the driver has never run here, so there are no claims
 * @throws DriverError `store-unusable`
 */
export function readStoredClaims(path: string): readonly StoredClaim[] {
  if (!existsSync(path)) return [];
  using store = new Store(path, { readOnly: true });
  return store.claims();
}
