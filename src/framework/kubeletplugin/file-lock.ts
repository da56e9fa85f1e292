import { closeSync, fstatSync, mkdirSync, openSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock } from '../../lib/clock.ts';
import { tryLockByte, unlockByte } from '../../lib/open-file-lock.ts';
import { KubeletPluginError } from './errors.ts';

const pollMs = 10;
/** `RESERVED_BYTE` of SQLite, by which earlier versions locked the file: one may run beside us in a rolling update. */
const lockedByte = 0x40000001;

/**
 * A lock that one process at a time can hold: a byte of an empty file, locked by fcntl(2) for the open file
 * description. The kernel releases it when its holder ends, for whatever reason. Unlike a pid file it works across
 * containers. Nothing is ever written. Waiters retry every 10 ms, in no order.
 */
export class FileLock implements Disposable {
  readonly #path: string;
  readonly #clock: Clock;
  /** The last file that was unlocked, still open: opening another takes longer than locking. */
  #idle: LockFile | undefined;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /**
   * Waits until the lock is acquired; disposing releases it.
   * @throws KubeletPluginError `lock-unavailable` if locking fails, `call-aborted` if the signal fires first
   */
  async acquire(signal: AbortSignal): Promise<Disposable> {
    using stack = new DisposableStack();
    const file = stack.use(this.#guard(() => this.#open()));
    while (!this.#guard(() => tryLockByte(file.descriptor, lockedByte))) {
      await this.#clock.sleep(pollMs, signal).catch((cause) => {
        const message = `another instance holds lock ${this.#path}`;
        throw new KubeletPluginError('call-aborted', message, { cause, path: this.#path, retriable: true });
      });
    }
    stack.move();
    return { [Symbol.dispose]: () => this.#release(file) };
  }

  [Symbol.dispose](): void {
    this.#idle?.[Symbol.dispose]();
    this.#idle = undefined;
  }

  #open(): LockFile {
    const idle = this.#idle;
    this.#idle = undefined;
    // The file may have been removed and created anew since.
    if (idle !== undefined && idle.inode === inodeOf(this.#path)) return idle;
    idle?.[Symbol.dispose]();
    mkdirSync(dirname(this.#path), { recursive: true, mode: 0o750 });
    const descriptor = openSync(this.#path, 'a+', 0o644);
    return { descriptor, inode: fstatSync(descriptor).ino, [Symbol.dispose]: () => closeSync(descriptor) };
  }

  #release(file: LockFile): void {
    if (this.#idle === undefined) {
      try {
        unlockByte(file.descriptor, lockedByte);
        this.#idle = file;
        return;
      } catch {
        // Closing it releases the lock, too.
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

/** The empty file, while it is open. */
interface LockFile extends Disposable {
  readonly descriptor: number;
  /** Of the file when it was opened. */
  readonly inode: number;
}

function inodeOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.ino;
}
