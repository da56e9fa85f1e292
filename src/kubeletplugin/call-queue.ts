import { KeyedMutex } from '../keyed-mutex.ts';
import { KubeletPluginError } from './errors.ts';
import type { FileLock } from './file-lock.ts';

/** No UID of a claim. */
const lockKey = 'lock';
/** A node has some hundred pods; what waits beyond that is turned away, and the kubelet tries again. */
const maxWaiting = 1_000;

/**
 * One task at a time for each key, in the order in which they came. With a lock, tasks of different processes never
 * run at once: it is held as long as any of ours runs.
 */
export class CallQueue {
  readonly #mutex = new KeyedMutex();
  readonly #lock: FileLock | undefined;
  /** The lock, as long as a task of ours runs. */
  #held: { users: number; lock: Disposable | undefined } | undefined;
  #waiting = 0;

  constructor(lock?: FileLock) {
    this.#lock = lock;
  }

  /**
   * @param keys what the task is about; it waits for all that is about one of them
   * @param signal ends the waiting for the turn, not the task
   * @throws KubeletPluginError `call-aborted`, `lock-unavailable`, in the Go helper's words
   */
  async run<T>(signal: AbortSignal, keys: readonly string[], task: () => Promise<T>): Promise<T> {
    if (this.#waiting >= maxWaiting) {
      throw new KubeletPluginError('call-aborted', `${maxWaiting} calls are waiting already`, { retriable: true });
    }
    const turn = Promise.withResolvers<void>();
    const done = Promise.withResolvers<void>();
    // Always in the same order: two tasks never wait for each other.
    void this.#inTurn([...new Set(keys)].sort(), () => {
      turn.resolve();
      return done.promise;
    });
    this.#waiting += 1;
    try {
      await abortable(turn.promise, signal, 'serialize gRPC: the calls before this one have not ended').finally(() => {
        this.#waiting -= 1;
      });
      using _ = await this.#hold(signal);
      return await task();
    } finally {
      done.resolve();
    }
  }

  async #inTurn([key, ...more]: string[], task: () => Promise<void>): Promise<void> {
    if (key === undefined) return await task();
    await this.#mutex.run(key, () => this.#inTurn(more, task));
  }

  /** The lock of this process, which all of its tasks share. */
  async #hold(signal: AbortSignal): Promise<Disposable> {
    if (this.#lock !== undefined) {
      // Who waits for it does so by a signal of its own, so one at a time; those behind find it held.
      await this.#mutex.run(lockKey, async () => {
        this.#held ??= { users: 0, lock: await this.#acquire(signal) };
        this.#held.users += 1;
      });
    }
    return { [Symbol.dispose]: () => this.#letGo() };
  }

  async #acquire(signal: AbortSignal): Promise<Disposable | undefined> {
    return await this.#lock?.acquire(signal).catch((cause) => {
      throw new Error('serialize gRPC: lock file', { cause });
    });
  }

  #letGo(): void {
    if (this.#held === undefined) return;
    this.#held.users -= 1;
    if (this.#held.users > 0) return;
    this.#held.lock?.[Symbol.dispose]();
    this.#held = undefined;
  }
}

/**
 * Waits for a promise until the signal aborts; what the promise stands for goes on.
 * @throws KubeletPluginError `call-aborted` with the message
 */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal, message: string): Promise<T> {
  const aborted = Promise.withResolvers<never>();
  const abort = () =>
    aborted.reject(new KubeletPluginError('call-aborted', message, { cause: signal.reason, retriable: true }));
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort);
  try {
    return await Promise.race([promise, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
    // Nobody may be looking at either of them any more.
    aborted.promise.catch(() => undefined);
    promise.catch(() => undefined);
  }
}
