import { DatabaseSync, type DatabaseSyncOptions, type StatementSync } from 'node:sqlite';
import type { Database } from '../../src/driver/state/index.ts';

/** An open database with its prepared statements. */
interface Connection {
  database: DatabaseSync;
  statements: Map<string, StatementSync>;
}

/** How many have a database open, and have ever opened it. */
interface Users {
  now: number;
  ever: number;
}

const dataVersion = 'PRAGMA data_version';

/**
 * In-memory databases, whose connections stay open from one user to the next: writing to a file, opening it and
 * preparing statements took a quarter of the time of a schedule. Still real SQLite, with transactions, and with locks
 * between connections.
 */
export class MemoryDatabases implements Disposable {
  readonly #idle = new Map<string, Connection[]>();
  readonly #users = new Map<string, Users>();
  readonly #all: Connection[] = [];

  /** Connections to the same path share the same database until this is disposed of. */
  open(path: string, options: DatabaseSyncOptions = {}): Database {
    const idle = this.#idle.get(path) ?? [];
    this.#idle.set(path, idle);
    const connection = idle.pop() ?? this.#connect(path, options);
    const users = this.#users.get(path) ?? { now: 0, ever: 0 };
    this.#users.set(path, users);
    users.now += 1;
    users.ever += 1;
    return new MemoryDatabase(connection, users, () => {
      users.now -= 1;
      idle.push(connection);
    });
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
  readonly #users: Users;
  readonly #onClose: () => void;
  #connection: Connection | undefined;
  /** The data version, which only others change. */
  #version: { row: ReturnType<StatementSync['get']>; ever: number } | undefined;

  constructor(connection: Connection, users: Users, onClose: () => void) {
    this.#connection = connection;
    this.#users = users;
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
    if (sql === dataVersion) return { get: () => this.#dataVersion(known) } as StatementSync;
    return known;
  }

  /** It changes with the commits of others, of which there are none as long as this is the only one. */
  #dataVersion(statement: StatementSync) {
    const { now, ever } = this.#users;
    if (now > 1 || this.#version?.ever !== ever) this.#version = { row: statement.get(), ever: now > 1 ? 0 : ever };
    return this.#version.row;
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
