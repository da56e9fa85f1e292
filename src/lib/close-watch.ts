import { closeSync, read } from 'node:fs';
import { type Clock, resolvesWithin } from './clock.ts';
import { loadKoffi } from './koffi.ts';
import { periods } from './waiting-times.ts';

/** A wait for other processes to close a file. */
export interface FileWait {
  /**
   * Waits for a condition that becomes true only when other processes close the file.
   * @param descriptor descriptor of the file
   * @throws errors of the condition; the signal's reason if the signal aborts first
   */
  until(descriptor: number, isMet: () => boolean, signal?: AbortSignal): Promise<void>;
}

/**
 * Waits for other processes to close files that they have open for writing. Uses inotify(7), since the kernel reports each
 * close to it, also at the end of a process, and `fs.watch` does not report closes. All waiting tasks share one thread of
 * libuv's pool, which is free again when the last task ends. The kernel reports a close before it drops the file's locks: the
 * condition is therefore also tested every 250 ms. Without a free inotify instance or watch it is tested every 10 ms.
 */
export class CloseWatch implements FileWait {
  readonly #clock: Clock;
  #waiting = 0;
  #closes: Closes | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async until(descriptor: number, isMet: () => boolean, signal?: AbortSignal): Promise<void> {
    if (isMet()) return;
    this.#waiting++;
    try {
      const system = await loadInotify();
      this.#closes ??= Closes.open(system);
      const closes = this.#closes?.add(descriptor) ? this.#closes : undefined;
      for (;;) {
        // Taken before the condition is tested, so that no close in between is missed.
        const next = closes?.next;
        if (isMet()) return;
        if (next === undefined) await this.#clock.sleep(periods.fileLock, signal);
        else await resolvesWithin(this.#clock, periods.fileLockReported, next, signal);
        signal?.throwIfAborted();
      }
    } finally {
      if (--this.#waiting === 0) {
        this.#closes?.[Symbol.dispose]();
        this.#closes = undefined;
      }
    }
  }
}

/** Linux `IN_CLOEXEC`, `IN_CLOSE_WRITE`. Source: inotify(7). */
const closeOnExec = 0o2000000;
const closedAfterWrite = 0x8;
/** Size of the read buffer. A `struct inotify_event` without a name has 16 bytes; events that do not fit are read next. */
const bufferBytes = 1_024;

/** Closes of files, from one inotify instance. */
class Closes implements Disposable {
  readonly #system: Inotify;
  readonly #descriptor: number;
  readonly #buffer = Buffer.alloc(bufferBytes);
  /**
   * Removes the watch when the process exits. The removal is an event that makes the reading thread return: a process cannot
   * end before its threads.
   */
  readonly #unwatch = () => void this.#system.removeWatch(this.#descriptor, this.#watch);
  /** Number of the watch added last; -1: there is no watch, and nothing is read. */
  #watch = -1;
  #isOver = false;
  #next = Promise.withResolvers<void>();

  private constructor(system: Inotify, descriptor: number) {
    this.#system = system;
    this.#descriptor = descriptor;
  }

  /** Creates an inotify instance. @returns `undefined` if no instance is free */
  static open(system: Inotify): Closes | undefined {
    const descriptor = system.init(closeOnExec);
    return descriptor < 0 ? undefined : new Closes(system, descriptor);
  }

  /** Watches the file of a descriptor, even if the file was moved. @returns `false` if no inotify watch is free */
  add(descriptor: number): boolean {
    const isFirst = this.#watch < 0;
    const watch = this.#system.addWatch(this.#descriptor, `/proc/self/fd/${descriptor}`, closedAfterWrite);
    if (watch < 0) return false;
    this.#watch = watch;
    if (!isFirst) return true;
    process.on('exit', this.#unwatch);
    this.#read();
    return true;
  }

  /** Resolves at the next close. @throws Error if the kernel's events cannot be read */
  get next(): Promise<void> {
    return this.#next.promise;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    process.off('exit', this.#unwatch);
    if (this.#watch < 0) closeSync(this.#descriptor);
    else this.#unwatch();
  }

  #read(): void {
    read(this.#descriptor, this.#buffer, 0, bufferBytes, null, (error) => {
      if (this.#isOver) return closeSync(this.#descriptor);
      if (error !== null) return this.#next.reject(error);
      this.#next.resolve();
      this.#next = Promise.withResolvers<void>();
      this.#read();
    });
  }
}

interface Inotify {
  init: (flags: number) => number;
  addWatch: (descriptor: number, path: string, mask: number) => number;
  removeWatch: (descriptor: number, watch: number) => number;
}

let inotify: Inotify | undefined;

/** Loads the inotify functions once: each koffi lookup costs memory for good. */
async function loadInotify(): Promise<Inotify> {
  if (inotify !== undefined) return inotify;
  const library = (await loadKoffi()).load(null);
  inotify = {
    init: library.func('int inotify_init1(int flags)'),
    addWatch: library.func('int inotify_add_watch(int fd, const char *path, uint32_t mask)'),
    removeWatch: library.func('int inotify_rm_watch(int fd, int wd)'),
  };
  return inotify;
}
