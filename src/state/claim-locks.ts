import { createHash } from 'node:crypto';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import koffi from 'koffi';
import type { Clock } from '../clock.ts';
import { KeyedMutex } from '../keyed-mutex.ts';
import { StateError } from './errors.ts';

/** Serializes work on the VFs of a claim. */
export interface Locks {
  /** Runs the task when no other task for the same claim runs, in this instance of the driver or in another one. */
  run<T>(claimUid: string, task: () => Promise<T>): Promise<T>;
}

/** How often a lock that another instance holds is tried again. Only a rolling update has two instances. */
const pollMs = 10;
/** Linux `F_OFD_SETLK`, `F_WRLCK`, `F_UNLCK`, `SEEK_SET`. Source: fcntl(2). */
const setOpenFileLock = 37;
const lockTypes = { write: 1, unlock: 2 };
const seekSet = 0;

/**
 * One lock for each claim: a byte of a file, locked by fcntl(2) for the open file, so that the kernel releases it when the
 * process ends. Within the process tasks run in the order of the calls.
 */
export class ClaimLocks implements Locks, Disposable {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #descriptor: number;
  readonly #mutex = new KeyedMutex();

  /** @throws StateError `lock-unavailable` */
  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
    try {
      mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
      this.#descriptor = openSync(path, 'a+', 0o600);
    } catch (cause) {
      throw this.#unavailable(cause);
    }
  }

  async run<T>(claimUid: string, task: () => Promise<T>): Promise<T> {
    const offset = offsetOf(claimUid);
    return await this.#mutex.run(`${offset}`, async () => {
      while (!this.#set(lockTypes.write, offset)) await this.#clock.sleep(pollMs);
      try {
        return await task();
      } finally {
        this.#set(lockTypes.unlock, offset);
      }
    });
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }

  /** @returns `false` if another process holds it */
  #set(type: number, offset: number): boolean {
    const { fcntl, errno } = loadFcntl();
    // struct flock of 64-bit Linux: type and whence, padding, start, length, pid (0 for this kind of lock).
    const lock = Buffer.alloc(32);
    lock.writeInt16LE(type, 0);
    lock.writeInt16LE(seekSet, 2);
    lock.writeBigInt64LE(BigInt(offset), 8);
    lock.writeBigInt64LE(1n, 16);
    if (fcntl(this.#descriptor, lock) === 0) return true;
    const code = errno();
    if (code === koffi.os.errno.EAGAIN || code === koffi.os.errno.EACCES) return false;
    throw this.#unavailable(new Error(`fcntl failed with errno ${code}`));
  }

  #unavailable(cause: unknown): StateError {
    return new StateError('lock-unavailable', `cannot lock file ${this.#path}`, {
      cause,
      path: this.#path,
      retriable: true,
      hint: 'check the permissions of its directory, and that its file system supports locks',
    });
  }
}

/** Two claims with the same offset wait for each other, which is harmless and rare. */
function offsetOf(claimUid: string): number {
  return createHash('sha256').update(claimUid).digest().readUIntBE(0, 6);
}

interface Fcntl {
  fcntl: (descriptor: number, lock: Buffer) => number;
  errno: () => number;
}

let resolved: Fcntl | undefined;

/** Resolved once: each lookup by koffi costs memory for good. */
function loadFcntl(): Fcntl {
  if (resolved !== undefined) return resolved;
  const call = koffi.load(null).func('int fcntl(int fd, int cmd, ...)');
  resolved = {
    fcntl: (descriptor, lock) => call(descriptor, setOpenFileLock, 'void *', lock),
    errno: () => koffi.errno(),
  };
  return resolved;
}
