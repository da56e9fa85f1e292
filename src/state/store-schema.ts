import type { DatabaseSync } from 'node:sqlite';
import { StateError } from './errors.ts';

/** What a store uses of its database. */
export type Database = Pick<DatabaseSync, 'close' | 'exec' | 'isOpen' | 'isTransaction' | 'prepare'>;

/**
 * What brings a store from each schema to the next; the first one makes it. A step that was released is never changed,
 * and adds only what an older version does not trip over: that one may still be running during a rolling update.
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
  // In which boot of the node a claim was written last. What an older version writes is of this boot, as far as we know.
  'ALTER TABLE claims ADD COLUMN boot_id TEXT',
  `
    ALTER TABLE claims ADD COLUMN allocation TEXT;
    CREATE TABLE unrestored (
      pci_address TEXT PRIMARY KEY, data TEXT NOT NULL, reason TEXT NOT NULL, boot_id TEXT
    ) STRICT;
  `,
];

export const schemaVersion = migrations.length;

/**
 * Makes a store what this version works with.
 * @throws StateError `store-unusable` if a newer version has written it, or it is damaged; SQLite's errors
 */
export function migrate(database: Database, path: string): void {
  // Looked at in the transaction: another instance of the driver may be at it too.
  database.exec('BEGIN IMMEDIATE');
  try {
    const found = readVersion(database);
    if (found > schemaVersion) throw tooNew(path, found);
    checkIntact(database, path);
    for (const step of migrations.slice(found)) database.exec(step);
    if (found < schemaVersion) database.exec(`PRAGMA user_version = ${schemaVersion}`);
    database.exec('COMMIT');
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

/**
 * Whether this version can read a store that it does not bring up to date: an older schema has less, and that is known.
 * @throws StateError `store-unusable` if a newer version has written it; SQLite's errors
 */
export function checkReadable(database: Database, path: string): void {
  const found = readVersion(database);
  if (found > schemaVersion) throw tooNew(path, found);
}

function readVersion(database: Database): number {
  return Number(database.prepare('PRAGMA user_version').get()?.user_version);
}

/** SQLite notices damage only in the pages that it happens to read: better all of them now than one of them later. */
function checkIntact(database: Database, path: string): void {
  const [{ quick_check: verdict } = {}] = database.prepare('PRAGMA quick_check(1)').all();
  if (verdict === 'ok') return;
  throw new StateError('store-unusable', `state store ${path} is damaged: ${verdict}`, { path, hint: damagedHint });
}

/** What to do about a store that cannot be read any more. */
export const damagedHint =
  'drain the node, so that no pod has a VF any more, stop the driver, move the file away together with those beside it that begin with its name, and start the driver';

function tooNew(path: string, found: number): StateError {
  return new StateError(
    'store-unusable',
    `state store ${path} has schema ${found}, this version knows ${schemaVersion}`,
    { path, hint: 'run the newer version of the driver' },
  );
}
