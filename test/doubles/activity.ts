/** Lets tests wait for a state instead of sleeping: checks again after each event, and periodically anyway. */
export class Activity {
  readonly #what: string;
  readonly #waiters = new Set<() => void>();

  /** @param what name in errors: `API server double` */
  constructor(what: string) {
    this.#what = what;
  }

  /** Reports an event. */
  wake(): void {
    for (const waiter of [...this.#waiters]) waiter();
  }

  /**
   * @returns the first value of `condition` that is neither `undefined` nor `false`
   * @param explain adds the state to the error
   * @throws Error if there was none in time
   */
  async until<T>(
    condition: () => T | undefined | false,
    timeoutMs: number,
    explain: () => string = () => '',
  ): Promise<T> {
    const endsAt = performance.now() + timeoutMs;
    for (;;) {
      const value = condition();
      if (value !== undefined && value !== false) return value;
      const leftMs = endsAt - performance.now();
      if (leftMs <= 0) throw new Error(`${this.#what}: not within ${timeoutMs} ms: ${condition} ${explain()}`);
      // The test's own side of a connection may lag behind the event.
      await this.#next(Math.min(leftMs, 10));
    }
  }

  async #next(timeoutMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiters.add(resolve);
    const timer = setTimeout(resolve, timeoutMs);
    await promise;
    clearTimeout(timer);
    this.#waiters.delete(resolve);
  }
}
