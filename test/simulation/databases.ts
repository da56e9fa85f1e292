import { DatabaseSync, type DatabaseSyncOptions, type SQLInputValue, type StatementSync } from 'node:sqlite';
import type { Database } from '../../src/driver/state/index.ts';

/** An open database with its prepared statements. */
interface Connection {
  database: DatabaseSync;
  statements: Map<string, StatementSync>;
}

/** @param isRead whether the statement changes nothing */
type Before = (isRead: boolean) => void;

/**
 * In-memory databases, whose connections stay open from one user to the next: writing to a file, opening it and
 * preparing statements took a quarter of the time of a schedule. Still real SQLite, with transactions, and with locks
 * between connections.
 */
export class MemoryDatabases implements Disposable {
  readonly #idle = new Map<string, Connection[]>();
  readonly #all: Connection[] = [];

  /**
   * Connections to the same path share the same database until this is disposed of.
   * @param before called before each statement; what it throws is the failure of the statement
   */
  open(path: string, options: DatabaseSyncOptions = {}, before: Before = () => undefined): Database {
    const idle = this.#idle.get(path) ?? [];
    this.#idle.set(path, idle);
    const connection = idle.pop() ?? this.#connect(path, options);
    return new MemoryDatabase(connection, before, () => void idle.push(connection));
  }

  [Symbol.dispose](): void {
    for (const { database } of this.#all) database.close();
  }

  #connect(path: string, options: DatabaseSyncOptions): Connection {
    const database = new DatabaseSync(`file:${path}?vfs=memdb`, options);
    const connection = { database, statements: new Map<string, StatementSync>() };
    this.#all.push(connection);
    return connection;
  }
}

/** Once closed it stays closed, even if its connection is reused. */
class MemoryDatabase implements Database {
  readonly #before: Before;
  readonly #onClose: () => void;
  #connection: Connection | undefined;

  constructor(connection: Connection, before: Before, onClose: () => void) {
    this.#connection = connection;
    this.#before = before;
    this.#onClose = onClose;
  }

  get isOpen(): boolean {
    return this.#connection !== undefined;
  }

  get isTransaction(): boolean {
    return this.#open.database.isTransaction;
  }

  exec(sql: string): void {
    this.#open.database.exec(sql);
  }

  prepare(sql: string): StatementSync {
    const { database, statements } = this.#open;
    const known = statements.get(sql) ?? database.prepare(sql);
    statements.set(sql, known);
    const isRead = /^(SELECT|PRAGMA)/.test(sql);
    const all = (...values: SQLInputValue[]) => {
      this.#before(isRead);
      return known.all(...values);
    };
    return { all, get: known.get.bind(known), run: known.run.bind(known) } as unknown as StatementSync;
  }

  close(): void {
    const { database } = this.#open;
    if (database.isTransaction) database.exec('ROLLBACK');
    this.#connection = undefined;
    this.#onClose();
  }

  get #open(): Connection {
    if (this.#connection === undefined) throw new Error('database is not open');
    return this.#connection;
  }
}
