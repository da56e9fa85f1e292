/**
 * Work that continues after the call that started it. Each key has one run at a time. Disposing aborts the signal and waits for
 * all runs; errors of aborted runs are ignored.
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
   * Starts a run, unless one with this key is running or this object was disposed of.
   * @param isDue called when the work ends; returns whether to repeat it. A call of `run` between the last `isDue` and the end
   * of the run does not start another one, and its `work` is not done
   * @returns the current run
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
