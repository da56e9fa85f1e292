import { mkdirSync } from 'node:fs';
import { StateError, type StoredClaim, type UnrestoredVf } from '../driver/model/index.ts';
import { Store, StoredRecords } from '../driver/state/index.ts';
import { type ClaimRecords, RecordFiles } from '../framework/metadata/index.ts';
import { NetdraError } from '../lib/errors.ts';
import { isMissing } from '../lib/is-missing.ts';
import { storePath } from './directories.ts';

/** The driver's stored claims, which can be read while the driver runs. Reading is possible until disposal. */
export interface Stored extends Disposable {
  readonly claims: readonly StoredClaim[];
  readonly unrestored: readonly UnrestoredVf[];
  /** The framework's records of these claims. */
  records: ClaimRecords;
}

/**
 * Opens the store as {@link openStored} does, for a tool that needs claims. @throws NetdraError `state-missing` if the driver
 * has never run here
 */
export function openStoredByDriver(dirs: Parameters<typeof openStored>[0]): Stored {
  const store = openStore(dirs.stateDir);
  if (store !== undefined) return readStore(store, dirs.dataDir);
  throw new NetdraError('state-missing', `no driver has stored its state in ${dirs.stateDir}`, {
    path: dirs.stateDir,
    hint: 'run this on a node with the driver, with the same --driver-name and --state-dir as the driver',
  });
}

/**
 * Opens the driver's store for reading. Without a store, the driver has never run here, and the result has no claims.
 * @throws StateError `store-unusable`
 */
export function openStored({ stateDir, dataDir }: { stateDir: string; dataDir: string }): Stored {
  const store = openStore(stateDir);
  if (store !== undefined) return readStore(store, dataDir);
  return { claims: [], unrestored: [], records: new RecordFiles(dataDir), [Symbol.dispose]: () => undefined };
}

/** Opens the store. Returns `undefined` if no driver has created it, or none has finished creating it. */
function openStore(stateDir: string): Store | undefined {
  const path = storePath(stateDir);
  if (isMissing(path)) return undefined;
  const store = new Store(path, { readOnly: true });
  if (store.hasTables) return store;
  store[Symbol.dispose]();
  return undefined;
}

function readStore(store: Store, dataDir: string): Stored {
  const records = new StoredRecords({ store, dataDir });
  return {
    // Read only on access: the driver's start needs only the records.
    get claims() {
      return store.claims();
    },
    get unrestored() {
      return store.unrestored();
    },
    records,
    [Symbol.dispose]: () => store[Symbol.dispose](),
  };
}

/** Returns the PCI addresses of the devices of claims. @throws StateError `store-unusable` */
export function claimedFunctions(dirs: Parameters<typeof openStored>[0]): Set<string> {
  using stored = openStored(dirs);
  return new Set(stored.claims.flatMap(({ devices }) => devices.map(({ pciAddress }) => pciAddress)));
}

/** Creates the directory of the driver's database if it is missing. @throws StateError `store-unusable` */
export function makeStateDir(stateDir: string): void {
  try {
    mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  } catch (cause) {
    const path = storePath(stateDir);
    throw new StateError('store-unusable', `state store ${path} cannot be used`, {
      cause,
      path,
      retriable: true,
      hint: 'check space and permissions of the directory of the store',
    });
  }
}
