import { mkdirSync, statSync } from 'node:fs';
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
export class FileLock implements Disposable {
  readonly #path: string;
  readonly #clock: Clock;
  /** The last one that was given back: opening another takes ten times as long as locking. */
  #idle: LockFile | undefined;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /**
   * Waits until the lock is ours; disposing gives it back.
   * @throws KubeletPluginError `lock-unavailable` if the file cannot be locked, `call-aborted` if the signal comes first
   */
  async acquire(signal: AbortSignal): Promise<Disposable> {
    using stack = new DisposableStack();
    const file = stack.use(this.#guard(() => this.#open()));
    while (!this.#guard(() => tryLock(file.database))) {
      await this.#clock.sleep(pollMs, signal).catch((cause) => {
        const message = `another instance holds lock ${this.#path}`;
        throw new KubeletPluginError('call-aborted', message, { cause, path: this.#path, retriable: true });
      });
    }
    stack.move();
    return { [Symbol.dispose]: () => this.#giveBack(file) };
  }

  [Symbol.dispose](): void {
    this.#idle?.[Symbol.dispose]();
    this.#idle = undefined;
  }

  #open(): LockFile {
    const idle = this.#idle;
    this.#idle = undefined;
    // The file may have been removed and made anew by somebody since.
    if (idle !== undefined && idle.inode === inodeOf(this.#path)) return idle;
    idle?.[Symbol.dispose]();
    mkdirSync(dirname(this.#path), { recursive: true, mode: 0o750 });
    const database = openDatabase(this.#path);
    return { database, inode: inodeOf(this.#path), [Symbol.dispose]: () => database.close() };
  }

  #giveBack(file: LockFile): void {
    if (this.#idle === undefined && file.inode !== undefined) {
      try {
        file.database.exec('ROLLBACK');
        this.#idle = file;
        return;
      } catch {
        // Closing it gives the lock back, too.
      }
    }
    file[Symbol.dispose]();
  }

  #guard<T>(task: () => T): T {
    try {
      return task();
    } catch (cause) {
      throw new KubeletPluginError('lock-unavailable', `cannot lock file ${this.#path}`, {
        cause,
        path: this.#path,
        hint: 'check the permissions of its directory; the file itself may be removed while no instance runs',
      });
    }
  }
}

/** The empty database, open. */
interface LockFile extends Disposable {
  readonly database: DatabaseSync;
  /** Of its file, as it was opened. */
  readonly inode: number | undefined;
}

function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
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
