import { existsSync } from 'node:fs';
import { Store, type StoredClaim, StoredRecords } from '../../driver/state/index.ts';
import { type ClaimRecords, RecordFiles } from '../../framework/metadata/index.ts';

/**
 * Reads the driver's store beside the running driver.
 * @param path of the database file; if it is missing, the driver has never run here, so there are no claims
 * @throws StateError `store-unusable`
 */
export function readStoredClaims(path: string): readonly StoredClaim[] {
  if (!existsSync(path)) return [];
  using store = new Store(path, { readOnly: true });
  return store.claims();
}

/** The same with the records of the framework, which stay readable until the result is disposed of. */
export function openRecords(path: string, dataDir: string): { records: ClaimRecords } & Disposable {
  if (!existsSync(path)) return { records: new RecordFiles(dataDir), [Symbol.dispose]: () => undefined };
  const store = new Store(path, { readOnly: true });
  return { records: new StoredRecords({ store, dataDir }), [Symbol.dispose]: () => store[Symbol.dispose]() };
}
