import type { DatabaseSync, DatabaseSyncOptions } from 'node:sqlite';
import { StateError } from './errors.ts';

/** The part of a database that a store uses. */
export type Database = Pick<DatabaseSync, 'close' | 'exec' | 'isOpen' | 'isTransaction' | 'prepare'>;

export type OpenDatabase = (path: string, options: DatabaseSyncOptions) => Database;

/**
 * The migration from each schema to the next; the first one creates the store. A released step is never changed, and adds only
 * what an older version ignores: that version may still be running during a rolling update.
 */
const migrations: readonly string[] = [
  `
    CREATE TABLE IF NOT EXISTS claims (
      uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, pod_uids TEXT NOT NULL, state TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS devices (
      pci_address TEXT PRIMARY KEY, claim_uid TEXT NOT NULL REFERENCES claims (uid) ON DELETE CASCADE, data TEXT NOT NULL
    ) STRICT;
  `,
  // The boot of the node in which a claim was last written. Rows of an older version count as written in this boot.
  'ALTER TABLE claims ADD COLUMN boot_id TEXT',
  `
    ALTER TABLE claims ADD COLUMN allocation TEXT;
    CREATE TABLE unrestored (
      pci_address TEXT PRIMARY KEY, data TEXT NOT NULL, reason TEXT NOT NULL, boot_id TEXT
    ) STRICT;
  `,
  // The framework's records of claims, which older versions keep in files.
  'CREATE TABLE records (dir TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT',
  // Devices have no network data any more, without which an older version attaches the VFs of running pods once more.
  '-- The tables are the same.',
  // Conditions of devices, with what is known of their flaps.
  `
    CREATE TABLE conditions (
      pci_address TEXT NOT NULL, condition TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (pci_address, condition)
    ) STRICT;
  `,
];

/** The first schema with a table of records. */
export const recordsSince = 4;

export const schemaVersion = migrations.length;

/**
 * How long a change waits for that of another instance. SQLite sleeps meanwhile, and with it everything else in this process:
 * less than the two seconds after which a container runtime goes on without us.
 */
const busyMs = 1_000;

/** Opens a store for a tool beside the driver: nothing is created or changed. @throws StateError `store-unusable` */
export function openToRead(open: OpenDatabase, path: string): Database {
  return setUp(open(path, { readOnly: true, timeout: 5_000 }), (database) => {
    // It is not migrated: readers know that an older schema lacks columns.
    checkVersion(readVersion(database), path);
  });
}

/** @returns the database, which is closed if setting it up fails */
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
 * Opens a store, creates or migrates it, and marks rows of older versions with this boot.
 * @throws StateError `store-unusable`; SQLite's errors
 */
export function openDatabase(open: OpenDatabase, path: string, bootId: string | undefined): Database {
  return setUp(open(path, { timeout: busyMs, enableForeignKeyConstraints: true }), (database) => {
    // Not synced at each write: writes survive the process, and a power loss also ends the kernel's state that the store is
    // about. docs/decisions/0012-no-sync-at-each-write.md
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;');
    migrate(database, path);
    if (bootId !== undefined) database.prepare('UPDATE claims SET boot_id = ? WHERE boot_id IS NULL').run(bootId);
  });
}

/**
 * Migrates a store to the schema of this version.
 * @throws StateError `store-unusable` if a newer version has written it, or it is damaged; SQLite's errors
 */
function migrate(database: Database, path: string): void {
  // Read within the transaction: another instance of the driver may be migrating, too.
  database.exec('BEGIN IMMEDIATE');
  try {
    const found = readVersion(database);
    checkVersion(found, path);
    checkIntact(database, path);
    for (const step of migrations.slice(found)) database.exec(step);
    if (found < schemaVersion) database.exec(`PRAGMA user_version = ${schemaVersion}`);
    database.exec('COMMIT');
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

export function readVersion(database: Database): number {
  return Number(database.prepare('PRAGMA user_version').get()?.user_version);
}

/** SQLite detects damage only in pages that it reads, so all of them are read at the start. */
function checkIntact(database: Database, path: string): void {
  const [{ quick_check: verdict } = {}] = database.prepare('PRAGMA quick_check(1)').all();
  if (verdict === 'ok') return;
  throw new StateError('store-unusable', `state store ${path} is damaged: ${verdict}`, { path, hint: damagedHint });
}

/** What to do about a store that cannot be read. */
export const damagedHint =
  'drain the node, so that no pod has a VF any more, stop the driver, move the file away together with those beside it that begin with its name, and start the driver';

function checkVersion(found: number, path: string): void {
  if (found <= schemaVersion) return;
  const message = `state store ${path} has schema ${found}, this version knows ${schemaVersion}`;
  throw new StateError('store-unusable', message, { path, hint: 'run the newer version of the driver' });
}
