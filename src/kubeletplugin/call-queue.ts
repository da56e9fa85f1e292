import { KeyedMutex } from '../keyed-mutex.ts';
import { KubeletPluginError } from './errors.ts';
import type { FileLock } from './file-lock.ts';

/** One task at a time, in the order in which they came; with a lock also among the processes that share it. */
export class CallQueue {
  readonly #mutex = new KeyedMutex();
  readonly #lock: FileLock | undefined;

  constructor(lock?: FileLock) {
    this.#lock = lock;
  }

  /**
   * @param signal ends the waiting for the turn, not the task
   * @throws KubeletPluginError `call-aborted`, `lock-unavailable`, in the Go helper's words
   */
  async run<T>(signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    const turn = Promise.withResolvers<void>();
    const done = Promise.withResolvers<void>();
    void this.#mutex.run('', () => {
      turn.resolve();
      return done.promise;
    });
    try {
      await abortable(turn.promise, signal, 'serialize gRPC: the calls before this one have not ended');
      using _ = await this.#lock?.acquire(signal).catch((cause) => {
        throw new Error('serialize gRPC: lock file', { cause });
      });
      return await task();
    } finally {
      done.resolve();
    }
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
