/** Runs tasks with the same key one after the other, in the order of the calls; other keys do not wait. */
export class KeyedMutex {
  readonly #tails = new Map<string, Promise<void>>();

  async run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const previous = this.#tails.get(key);
    const { promise: tail, resolve: release } = Promise.withResolvers<void>();
    this.#tails.set(key, tail);
    try {
      await previous;
      return await task();
    } finally {
      release();
      if (this.#tails.get(key) === tail) this.#tails.delete(key);
    }
  }

  /** Runs a task under several keys at once: it waits for all tasks that use one of them. */
  async runAll<T>(keys: readonly string[], task: () => Promise<T>): Promise<T> {
    // Each key once and always in the same order, so that two tasks never wait for each other.
    const unique = [...new Set(keys)].sort().reverse();
    return await unique.reduce((inner, key) => () => this.run(key, inner), task)();
  }
}
