import { DatabaseSync, type DatabaseSyncOptions, type StatementSync } from 'node:sqlite';
import { StateError } from '../model/index.ts';
import type { Row } from './rows.ts';
import {
  type Database,
  damagedHint,
  type OpenDatabase,
  openDatabase,
  openToRead,
  readVersion,
} from './store-schema.ts';

export interface StoreDatabaseOptions {
  /** Whether a tool opens the database beside the driver: nothing is created or changed, and no writer has to wait. */
  readOnly?: boolean;
  /** Opens the file. Default: `node:sqlite`. */
  open?: OpenDatabase;
}

/** SQLite's codes for a file that is damaged or not a database. Source: sqlite.org/rescode.html. */
const damageCodes = [11, 26];
/** Statements that begin, commit and roll back a transaction, and a nested one. */
const outerSteps = ['BEGIN IMMEDIATE', 'COMMIT', 'ROLLBACK'] as const;
const innerSteps = ['SAVEPOINT part', 'RELEASE part', 'ROLLBACK TO part; RELEASE part'] as const;

/**
 * Database of the store: statements, transactions, and errors with remedies. SQLite in WAL mode, since two instances of the
 * driver share it during a rolling update. Every method throws StateError `store-unusable`.
 */
export class StoreDatabase implements Disposable {
  /** Path of the database file. */
  readonly path: string;
  readonly #database: Database;
  readonly #isReadOnly: boolean;
  readonly #statements = new Map<string, StatementSync>();

  /** @param path path of the database file, which is created if it is missing, unless `readOnly` */
  constructor(path: string, { readOnly = false, open = openFile }: StoreDatabaseOptions) {
    this.path = path;
    this.#isReadOnly = readOnly;
    this.#database = this.guard(() => (readOnly ? openToRead(open, path) : openDatabase(open, path)));
  }

  get hasTables(): boolean {
    return this.guard(() => readVersion(this.#database) > 0);
  }

  get isTransaction(): boolean {
    return this.#database.isTransaction;
  }

  /** Runs a task in a transaction, nested if one is open. Rolls back if the task throws. @throws the error of the task */
  transaction(task: () => void): void {
    const [begin, commit, undo] = this.isTransaction ? innerSteps : outerSteps;
    this.query(begin);
    try {
      task();
      this.query(commit);
    } catch (error) {
      // A full disk ends the transaction by itself.
      if (this.isTransaction) this.guard(() => this.#database.exec(undo));
      throw error;
    }
  }

  /** Runs a statement. Prepared statements are cached: there are only a handful. */
  query(sql: string, ...parameters: (string | null)[]): Row[] {
    return this.guard(() => {
      const statement = this.#statements.get(sql) ?? this.#database.prepare(sql);
      this.#statements.set(sql, statement);
      return statement.all(...parameters);
    });
  }

  /** Runs a task that reads or changes the database, and translates its errors. */
  guard<T>(task: () => T): T {
    try {
      return task();
    } catch (cause) {
      if (cause instanceof StateError) throw cause;
      const details = { cause, path: this.path, retriable: !isDamage(cause), hint: this.#hintFor(cause) };
      throw new StateError('store-unusable', `state store ${this.path} cannot be used`, details);
    }
  }

  [Symbol.dispose](): void {
    if (this.#database.isOpen) this.#database.close();
  }

  #hintFor(cause: unknown): string {
    if (isDamage(cause)) return damagedHint;
    if (this.#isReadOnly) return 'run this as root, in the same version as the driver';
    return 'check space and permissions of the directory of the store; the driver does nothing without the store';
  }
}

/** Returns whether the file is damaged: SQLite reports it, or the content is not JSON, which the driver would have written. */
function isDamage(error: unknown): boolean {
  if (error instanceof SyntaxError) return true;
  return error instanceof Error && 'errcode' in error && damageCodes.includes(Number(error.errcode) & 0xff);
}

function openFile(path: string, options: DatabaseSyncOptions): Database {
  return new DatabaseSync(path, options);
}
