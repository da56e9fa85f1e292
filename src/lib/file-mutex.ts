import { hash } from 'node:crypto';
import { closeSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import type { FileWait } from './close-watch.ts';
import type { ErrorDetails } from './errors.ts';
import { KeyedMutex } from './keyed-mutex.ts';
import { loadKoffi } from './koffi.ts';

/** Locks a byte for an open file. @returns `false` if another open file description holds it */
export type LockByte = (descriptor: number, byte: number) => boolean;

type LockErrorClass = new (code: 'lock-unavailable', message: string, details: ErrorDetails) => Error;

/**
 * A mutex that processes share. Each key is one byte of an empty file, locked by fcntl(2) for an open file description. The
 * kernel releases the lock when its holder ends, for whatever reason; unlike a PID file, the lock works across containers.
 * Tasks of one process get a key in the order of their calls; between processes there is no order.
 */
export class FileMutex extends KeyedMutex implements Disposable {
  readonly #path: string;
  readonly #wait: FileWait;
  readonly #LockError: LockErrorClass;
  readonly #lock: LockByte | Extent;
  /** Descriptors of the tasks that hold keys or wait for other processes. */
  readonly #open = new Set<number>();

  /**
   * Creates a mutex.
   * @param wait waits for other processes
   * @param lock locks a byte for each key, or the whole file
   * @param LockError class of the error `lock-unavailable`, which all methods throw if the file cannot be opened or locked
   */
  constructor(path: string, wait: FileWait, LockError: LockErrorClass, lock: LockByte | Extent = 'key') {
    super();
    this.#path = path;
    this.#wait = wait;
    this.#LockError = LockError;
    this.#lock = lock;
    this.#guard(() => mkdirSync(dirname(path), { recursive: true, mode: 0o750 }));
    closeSync(this.#openFile());
  }

  /** Acquires several keys. Keys with the same byte wait for each other, which is harmless and rare. */
  override async acquireAll(keys: readonly string[], signal?: AbortSignal): Promise<Disposable> {
    // Sorted, so that all processes lock in the same order and two tasks never wait for each other.
    const bytes = [...new Set(keys.map(byteOf))].sort((a, b) => a - b);
    using stack = new DisposableStack();
    stack.use(await super.acquireAll(bytes.map(String), signal));
    if (bytes.length === 0) return stack.move();
    // Opened each time, since the file may have been recreated. Closing the descriptor wakes up waiting processes.
    const descriptor = this.#openFile();
    this.#open.add(descriptor);
    stack.defer(() => this.#close(descriptor));
    const lockByte = typeof this.#lock === 'function' ? this.#lock : await loadFileLock(this.#lock);
    let locked = 0;
    const isLocked = () => {
      while (locked < bytes.length && this.#guard(() => lockByte(descriptor, bytes[locked]!))) locked++;
      return locked === bytes.length;
    };
    await this.#wait.until(descriptor, isLocked, signal);
    return stack.move();
  }

  /** Releases all keys, as the end of the process does. */
  [Symbol.dispose](): void {
    for (const descriptor of this.#open) this.#close(descriptor);
  }

  #openFile(): number {
    return this.#guard(() => openSync(this.#path, 'a+', 0o600));
  }

  /** Closes a descriptor only once: another file may get its number afterwards. */
  #close(descriptor: number): void {
    if (this.#open.delete(descriptor)) closeSync(descriptor);
  }

  #guard<T>(task: () => T): T {
    try {
      return task();
    } catch (cause) {
      const hint = 'check the permissions of its directory, and that its file system supports locks';
      const details = { cause, path: this.#path, retriable: true, hint };
      throw new this.#LockError('lock-unavailable', `cannot lock file ${this.#path}`, details);
    }
  }
}

function byteOf(key: string): number {
  return hash('sha256', key, 'buffer').readUIntBE(0, 6);
}

/** Linux `F_OFD_SETLK`, `F_WRLCK`. Source: fcntl(2). */
const setOpenFileLock = 37;
const writeLock = 1;

/**
 * `struct flock` of 64-bit Linux, in 32-bit words: type and whence (counted from the start), padding, start, length, PID (0
 * here).
 */
const lock = new Uint32Array(8);
const word = { typeAndWhence: 0, start: 2, length: 4 };
/** Length of a lock that covers the whole file. */
const toTheEnd = 0;

/** Part of a file that a lock covers: one byte for each key, or the whole file. */
export type Extent = 'key' | 'file';

type Fcntl = (descriptor: number, command: number, lock: Uint32Array) => number;
let fcntl: Fcntl | undefined;

/** Loads the kernel's function for file locks. @returns a function that locks, and throws an Error with the errno */
export async function loadFileLock(extent: Extent): Promise<LockByte> {
  const koffi = await loadKoffi();
  // Looked up once: each koffi lookup costs memory for good. fcntl(2) is variadic in its third argument. Declaring that as
  // fixed makes no difference on x86-64 and arm64, and saves koffi from examining the types at each call.
  fcntl ??= koffi.load(null).func('int fcntl(int fd, int cmd, void *lock)') as Fcntl;
  const call = fcntl;
  return (descriptor, byte) => {
    const [start, length] = extent === 'file' ? [0, toTheEnd] : [byte, 1];
    lock[word.typeAndWhence] = writeLock;
    lock[word.start] = start;
    lock[word.start + 1] = Math.floor(start / 2 ** 32);
    lock[word.length] = length;
    if (call(descriptor, setOpenFileLock, lock) === 0) return true;
    const code = koffi.errno();
    if (code === koffi.os.errno.EAGAIN || code === koffi.os.errno.EACCES) return false;
    throw new Error(`fcntl failed with errno ${code}`);
  };
}
