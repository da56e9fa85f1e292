/**
 * Work that goes on by itself after the call that asked for it, one run at a time for each key. Disposing aborts the signal
 * and waits for all runs; errors that occur from then on are ignored.
 */
export class Background implements AsyncDisposable {
  readonly #stop = new AbortController();
  readonly #running = new Map<string, Promise<void>>();

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  isRunning(key: string): boolean {
    return this.#running.has(key);
  }

  /**
   * Starts a run, unless there is one, or all have ended for good.
   * @param isDue asked when the work has ended, whether it is to be done again: a call that comes at its very end starts no run
   * @returns the run that there is
   */
  async run(key: string, work: (signal: AbortSignal) => Promise<void>, isDue?: () => boolean): Promise<void> {
    if (!this.signal.aborted && !this.#running.has(key)) this.#running.set(key, this.#start(key, work, isDue));
    await this.#running.get(key);
  }

  async #start(key: string, work: (signal: AbortSignal) => Promise<void>, isDue?: () => boolean): Promise<void> {
    try {
      do await work(this.signal);
      while (!this.signal.aborted && isDue?.());
    } catch (error) {
      if (!this.signal.aborted) throw error;
    } finally {
      this.#running.delete(key);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.all(this.#running.values());
  }
}
