import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import { KubeletPluginError } from './errors.ts';
import type { FileLock } from './file-lock.ts';
import { SharedLock } from './shared-lock.ts';

/** A node has some hundred pods. Calls beyond this limit are refused, and the kubelet retries them. */
const maxWaiting = 1_000;

/**
 * Runs one task at a time for each key, in order of arrival. With a lock, tasks of different processes never run at
 * once: the lock is held while any task of this process runs.
 */
export class CallQueue {
  readonly #mutex = new KeyedMutex();
  readonly #lock: SharedLock;
  #waiting = 0;

  constructor(lock?: FileLock) {
    this.#lock = new SharedLock(lock);
  }

  /**
   * @param keys what the task is about; it waits for all earlier tasks with one of these keys
   * @param signal ends the wait for the turn, not the task
   * @throws KubeletPluginError `call-aborted`, `lock-unavailable`, in the Go helper's words
   */
  async run<T>(signal: AbortSignal, keys: readonly string[], task: () => Promise<T>): Promise<T> {
    if (this.#waiting >= maxWaiting) {
      throw new KubeletPluginError('call-aborted', `${maxWaiting} calls are waiting already`, { retriable: true });
    }
    const turn = Promise.withResolvers<void>();
    const done = Promise.withResolvers<void>();
    void this.#mutex.runAll(keys, () => {
      turn.resolve();
      return done.promise;
    });
    this.#waiting += 1;
    try {
      await abortable(turn.promise, signal, 'serialize gRPC: the calls before this one have not ended').finally(() => {
        this.#waiting -= 1;
      });
      using _ = await this.#acquire(signal);
      return await task();
    } finally {
      done.resolve();
    }
  }

  async #acquire(signal: AbortSignal): Promise<Disposable> {
    return await this.#lock.acquire(signal).catch((cause) => {
      throw new Error('serialize gRPC: lock file', { cause });
    });
  }
}

/**
 * Waits for a promise until the signal aborts; the work behind the promise goes on.
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
    // Neither may be awaited any more, and a later rejection must not go unhandled.
    aborted.promise.catch(() => undefined);
    promise.catch(() => undefined);
  }
}
