import { closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import koffi from 'koffi';
import type { Clock } from './clock.ts';
import type { ErrorDetails } from './errors.ts';
import { KeyedMutex } from './keyed-mutex.ts';
import { periods } from './waiting-times.ts';

/** Locks a byte for an open file. @returns `false` if another open file description holds it */
export type LockByte = (descriptor: number, byte: number) => boolean;

type LockErrorClass = new (code: 'lock-unavailable', message: string, details: ErrorDetails) => Error;

/**
 * Locks between processes: each byte of an empty file is one, locked by fcntl(2) for an open file description. The kernel
 * releases it when its holder ends, for whatever reason. Unlike a pid file it works across containers. Nothing is ever
 * written. Tasks of one process get a lock in the order of their calls; other processes in no order.
 *
 * A task that finds a lock taken tries again every 10 ms, and does not wait in the kernel (`F_OFD_SETLKW`). Such a wait keeps a
 * thread of libuv's pool of four, without which the process cannot end; and a limit for these threads would be one more lock,
 * for which holders of others would wait.
 */
export class FileLock implements Disposable {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #LockError: LockErrorClass;
  readonly #lockByte: LockByte;
  readonly #turns = new KeyedMutex();
  /** Descriptors of the locks that are held. */
  readonly #held = new Set<number>();

  /** @param LockError thrown, also by `acquire`, as `lock-unavailable` if the file cannot be opened or locked */
  constructor(path: string, clock: Clock, LockError: LockErrorClass, lockByte: LockByte = tryLockByte) {
    this.#path = path;
    this.#clock = clock;
    this.#LockError = LockError;
    this.#lockByte = lockByte;
    this.#guard(() => mkdirSync(dirname(path), { recursive: true, mode: 0o750 }));
    closeSync(this.#open());
  }

  /**
   * Waits until the lock is acquired; disposing releases it.
   * @param byte the offset, which need not be within the file
   * @throws LockError; the signal's reason if it fires before
   */
  async acquire(byte: number, signal?: AbortSignal): Promise<Disposable> {
    using stack = new DisposableStack();
    stack.use(await this.#turns.acquire(String(byte), signal));
    // Opened each time: the file may have been removed and created anew since.
    const descriptor = this.#open();
    this.#held.add(descriptor);
    stack.defer(() => this.#close(descriptor));
    while (!this.#guard(() => this.#lockByte(descriptor, byte))) await this.#clock.sleep(periods.fileLock, signal);
    return stack.move();
  }

  /** Releases all locks, as the end of the process does. */
  [Symbol.dispose](): void {
    for (const descriptor of this.#held) this.#close(descriptor);
  }

  #open(): number {
    return this.#guard(() => openSync(this.#path, 'a+', 0o600));
  }

  /** Only once: its number may be that of another file by then. */
  #close(descriptor: number): void {
    if (this.#held.delete(descriptor)) closeSync(descriptor);
  }

  #guard<T>(task: () => T): T {
    try {
      return task();
    } catch (cause) {
      throw new this.#LockError('lock-unavailable', `cannot lock file ${this.#path}`, {
        ...{ cause, path: this.#path, retriable: true },
        hint: 'check the permissions of its directory, and that its file system supports locks',
      });
    }
  }
}

/** Linux `F_OFD_SETLK`, `F_WRLCK`. Source: fcntl(2). */
const setOpenFileLock = 37;
const writeLock = 1;

/** `struct flock` of 64-bit Linux, in 32-bit words: type and whence (from the start), padding, start, length, pid (0 here). */
const lock = new Uint32Array(8);
let fcntl: ((descriptor: number, command: number, lock: Uint32Array) => number) | undefined;
const word = { typeAndWhence: 0, start: 2, length: 4 };

/** @throws Error with the errno */
function tryLockByte(descriptor: number, offset: number): boolean {
  lock[word.typeAndWhence] = writeLock;
  lock[word.start] = offset;
  lock[word.start + 1] = Math.floor(offset / 2 ** 32);
  lock[word.length] = 1;
  // Resolved once: each koffi lookup costs memory for good. The third argument of fcntl(2) is variadic; declaring it fixed
  // makes no difference on x86-64 and arm64, and koffi examines the types of a variadic call each time.
  fcntl ??= koffi.load(null).func('int fcntl(int fd, int cmd, void *lock)');
  if (fcntl?.(descriptor, setOpenFileLock, lock) === 0) return true;
  const code = koffi.errno();
  if (code === koffi.os.errno.EAGAIN || code === koffi.os.errno.EACCES) return false;
  throw new Error(`fcntl failed with errno ${code}`);
}
