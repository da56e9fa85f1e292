import { existsSync } from 'node:fs';
import { Store, type StoredClaim } from '../state/index.ts';

/**
 * What the driver's store has, read beside the running driver.
 * @param path of the database file; none: the driver has never run here, so there are no claims
 * @throws DriverError `store-unusable`
 */
export function readStoredClaims(path: string): readonly StoredClaim[] {
  if (!existsSync(path)) return [];
  using store = new Store(path, { readOnly: true });
  return store.claims();
}
