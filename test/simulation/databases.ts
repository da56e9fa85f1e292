import { DatabaseSync, type DatabaseSyncOptions, type SQLInputValue, type StatementSync } from 'node:sqlite';
import type { Database } from '../../src/driver/state/index.ts';

/** An open database with its prepared statements. */
interface Connection {
  database: DatabaseSync;
  statements: Map<string, StatementSync>;
}

/** The connections to one path. */
interface Connections {
  idle: Connection[];
  used: number;
  /** How often one was taken into use. */
  opened: number;
}

/** @param isRead whether the statement changes nothing */
type Before = (isRead: boolean) => void;

/**
 * In-memory databases, whose connections stay open from one user to the next: writing to a file, opening it and
 * preparing statements took a quarter of the time of a schedule. Still real SQLite, with transactions, and with locks
 * between connections.
 */
export class MemoryDatabases implements Disposable {
  readonly #paths = new Map<string, Connections>();
  readonly #all: Connection[] = [];

  /**
   * Connections to the same path share the same database until this is disposed of.
   * @param before called before each statement; what it throws is the failure of the statement
   */
  open(path: string, options: DatabaseSyncOptions = {}, before: Before = () => undefined): Database {
    const all = this.#paths.get(path) ?? { idle: [], used: 0, opened: 0 };
    this.#paths.set(path, all);
    const connection = all.idle.pop() ?? this.#connect(path, options);
    all.used += 1;
    all.opened += 1;
    return new MemoryDatabase(connection, all, before);
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
  readonly #connections: Connections;
  #connection: Connection | undefined;

  constructor(connection: Connection, connections: Connections, before: Before) {
    this.#connection = connection;
    this.#connections = connections;
    this.#before = before;
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
    const asksForChanges = sql === 'PRAGMA data_version';
    const all = (...values: SQLInputValue[]) => {
      this.#before(isRead);
      const { used, opened } = this.#connections;
      // More than half of all statements ask that; while there is one connection, no other one writes.
      if (asksForChanges && used === 1) return [{ data_version: `alone since ${opened}` }];
      return known.all(...values);
    };
    return { all, get: known.get.bind(known), run: known.run.bind(known) } as unknown as StatementSync;
  }

  close(): void {
    const { database } = this.#open;
    if (database.isTransaction) database.exec('ROLLBACK');
    this.#connections.idle.push(this.#open);
    this.#connections.used -= 1;
    this.#connection = undefined;
  }

  get #open(): Connection {
    if (this.#connection === undefined) throw new Error('database is not open');
    return this.#connection;
  }
}
