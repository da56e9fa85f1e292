/** Delay before queued work, long enough to serve the successor of a replaced pod first. */
const restMs = 1_000;

/** Tasks that can wait: they run a second after the first of them has come, one at a time between other events. Their errors are dropped. */
export class Backlog implements Disposable {
  readonly #tasks: (() => void)[] = [];
  #timer: NodeJS.Timeout | undefined;

  add(task: () => void): void {
    this.#tasks.push(task);
    this.#timer ??= setTimeout(() => this.#runNext(), restMs);
  }

  /** Runs what is left. */
  [Symbol.dispose](): void {
    while (this.#tasks.length > 0) this.#runNext();
    clearTimeout(this.#timer);
  }

  #runNext(): void {
    try {
      this.#tasks.shift()?.();
    } catch {
      // Those who add tasks find out by themselves what was not done.
    }
    clearTimeout(this.#timer);
    this.#timer = this.#tasks.length === 0 ? undefined : setTimeout(() => this.#runNext());
  }
}
