import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Clock } from '../clock.ts';
import { KubeletPluginError } from './errors.ts';

const pollMs = 10;
/** `SQLITE_BUSY` */
const busy = 5;

/**
 * A lock that one process at a time can hold. It is SQLite's own write lock on an empty database, for Node.js has no
 * flock(2): the kernel gives it back when its holder ends, however that ends, and it works between containers, which a
 * file with a pid in it does not. Nothing is ever written. Who waits looks again every 10 ms, in no order.
 */
export class FileLock {
  readonly #path: string;
  readonly #clock: Clock;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /**
   * Waits until the lock is ours; disposing gives it back.
   * @throws KubeletPluginError `lock-unavailable` if the file cannot be locked, `call-aborted` if the signal comes first
   */
  async acquire(signal: AbortSignal): Promise<Disposable> {
    // Opened each time: the file may have been removed and made anew by somebody since.
    const database = await this.#guard(async () => {
      await mkdir(dirname(this.#path), { recursive: true, mode: 0o750 });
      return openDatabase(this.#path);
    });
    using stack = new DisposableStack();
    stack.use(database);
    while (!(await this.#guard(async () => tryLock(database)))) {
      await this.#clock.sleep(pollMs, signal).catch((cause) => {
        const message = `another instance holds lock ${this.#path}`;
        throw new KubeletPluginError('call-aborted', message, { cause, path: this.#path, retriable: true });
      });
    }
    return stack.move();
  }

  async #guard<T>(task: () => Promise<T>): Promise<T> {
    try {
      return await task();
    } catch (cause) {
      throw new KubeletPluginError('lock-unavailable', `cannot lock file ${this.#path}`, {
        cause,
        path: this.#path,
        hint: 'check the permissions of its directory; the file itself may be removed while no instance runs',
      });
    }
  }
}

function openDatabase(path: string): DatabaseSync {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // No journal file beside it, which a crash would leave.
    database.exec('PRAGMA journal_mode = MEMORY');
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function tryLock(database: DatabaseSync): boolean {
  try {
    database.exec('BEGIN IMMEDIATE');
    return true;
  } catch (error) {
    if (error instanceof Error && 'errcode' in error && error.errcode === busy) return false;
    throw error;
  }
}
