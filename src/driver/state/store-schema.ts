import type { DatabaseSync, DatabaseSyncOptions } from 'node:sqlite';
import { StateError } from '../model/index.ts';

/** The part of a database that a store uses. */
export type Database = Pick<DatabaseSync, 'close' | 'exec' | 'isOpen' | 'isTransaction' | 'prepare'>;

export type OpenDatabase = (path: string, options: DatabaseSyncOptions) => Database;

/** Version of the schema, which is stored in the file. A driver that changes the tables gets the next number. */
export const schemaVersion = 1;

/**
 * Tables of the store. `boot_id` is the boot of the node in which a row was last written; for `device_key` see
 * `formatDeviceKey`; `records` has the records of the framework.
 */
const tables = `
  CREATE TABLE claims (
    uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, pod_uids TEXT NOT NULL, state TEXT NOT NULL,
    boot_id TEXT, allocation TEXT NOT NULL
  ) STRICT;
  CREATE TABLE devices (
    device_key TEXT PRIMARY KEY, claim_uid TEXT NOT NULL REFERENCES claims (uid) ON DELETE CASCADE, data TEXT NOT NULL
  ) STRICT;
  CREATE TABLE unrestored (device_key TEXT PRIMARY KEY, data TEXT NOT NULL, reason TEXT NOT NULL, boot_id TEXT) STRICT;
  CREATE TABLE records (dir TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
  CREATE TABLE conditions (
    pci_address TEXT NOT NULL, condition TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (pci_address, condition)
  ) STRICT;
`;

/**
 * How long a change waits for another instance's change, ms. SQLite blocks the whole process during that time, so it is less
 * than the two seconds after which a container runtime proceeds without the driver.
 */
const busyMs = 1_000;

/** Opens a store for a tool beside the driver. Nothing is created or changed. @throws StateError `store-unusable` */
export function openToRead(open: OpenDatabase, path: string): Database {
  return setUp(open(path, { readOnly: true, timeout: 5_000 }), (database) => {
    checkVersion(readVersion(database), path);
  });
}

/** Runs a task that sets up a database. @returns the database, which is closed if the task fails */
function setUp(database: Database, task: (database: Database) => void): Database {
  try {
    task(database);
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

/**
 * Opens a store, and creates it if it is missing.
 * @throws StateError `store-unusable`; SQLite's errors
 */
export function openDatabase(open: OpenDatabase, path: string): Database {
  return setUp(open(path, { timeout: busyMs, enableForeignKeyConstraints: true }), (database) => {
    // SQLite does not sync at each write: writes survive the process, and a power loss also ends the kernel state that the
    // store describes. docs/decisions/0012-no-sync-at-each-write.md
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;');
    createTables(database, path);
  });
}

/**
 * Creates the tables if they are missing. @throws StateError `store-unusable` if a newer version has written the file, or the
 * file is damaged; SQLite's errors
 */
function createTables(database: Database, path: string): void {
  // The version is read within the transaction: another instance of the driver may create the tables at the same time.
  database.exec('BEGIN IMMEDIATE');
  try {
    const found = readVersion(database);
    checkVersion(found, path);
    checkIntact(database, path);
    if (found < schemaVersion) database.exec(`${tables} PRAGMA user_version = ${schemaVersion}`);
    database.exec('COMMIT');
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

/** SQLite's code for a rollback journal that a reader cannot apply. Source: sqlite.org/rescode.html. */
const interruptedCode = 776;

/** Returns the version of the schema; 0 if the first start of the driver ended before it had created the tables. */
export function readVersion(database: Database): number {
  try {
    return Number(database.prepare('PRAGMA user_version').get()?.user_version);
  } catch (error) {
    // Only the first write of a new file has such a journal: all later writes use the WAL.
    if (error instanceof Error && 'errcode' in error && error.errcode === interruptedCode) return 0;
    throw error;
  }
}

/** Checks the whole file, since SQLite detects damage only in pages that it reads. @throws StateError `store-unusable` */
function checkIntact(database: Database, path: string): void {
  const [{ quick_check: verdict } = {}] = database.prepare('PRAGMA quick_check(1)').all();
  if (verdict === 'ok') return;
  throw new StateError('store-unusable', `state store ${path} is damaged: ${verdict}`, { path, hint: damagedHint });
}

/** Remedy for a damaged store. */
export const damagedHint =
  'drain the node, so that no pod has a VF, stop the driver, move the file and its -wal and -shm files away, and start the driver';

function checkVersion(found: number, path: string): void {
  if (found <= schemaVersion) return;
  const message = `state store ${path} has schema ${found}, this version knows ${schemaVersion}`;
  throw new StateError('store-unusable', message, { path, hint: 'run the newer version of the driver' });
}
