import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import { onAbort } from './exec.ts';

export interface TurnOptions {
  signal: AbortSignal;
  /** The error for a signal that fires before the turn has come. */
  onTooLate: () => Error;
}

/**
 * Runs tasks with the same key one after the other. The caller gets its answer no later than its signal, while a task
 * that has begun goes on: it is given a way to answer early, and the next task of its key waits for its real end.
 */
export class Turns implements AsyncDisposable {
  readonly #mutex = new KeyedMutex();
  readonly #running = new Set<Promise<void>>();

  /** @param task gets a function that rejects the answer before the task has ended */
  async take<T>(
    key: string,
    { signal, onTooLate }: TurnOptions,
    task: (fail: (error: unknown) => void) => Promise<T>,
  ): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const onAborted = onAbort(signal, () => reject(onTooLate()));
    const run = this.#mutex
      .run(key, async () => {
        if (signal.aborted) throw onTooLate();
        onAborted[Symbol.dispose]();
        return await task(reject);
      })
      .then(resolve, reject)
      .finally(() => this.#running.delete(run));
    this.#running.add(run);
    return await promise;
  }

  /** Waits for everything that was begun. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#running);
  }
}
