/** Delay before queued work, long enough to serve the successor of a replaced pod first. */
const restMs = 1_000;

/**
 * Queue for tasks that are not urgent. The tasks start a second after the first one was added and run one at a time, between
 * other events. Their errors are dropped.
 */
export class Backlog implements Disposable {
  readonly #tasks: (() => void)[] = [];
  #timer: NodeJS.Timeout | undefined;

  add(task: () => void): void {
    this.#tasks.push(task);
    this.#timer ??= setTimeout(() => this.#runNext(), restMs);
  }

  /** Runs the remaining tasks. */
  [Symbol.dispose](): void {
    while (this.#tasks.length > 0) this.#runNext();
    clearTimeout(this.#timer);
  }

  #runNext(): void {
    try {
      this.#tasks.shift()?.();
    } catch {
      // Dropped: the component that added the task detects later that it was not done.
    }
    clearTimeout(this.#timer);
    this.#timer = this.#tasks.length === 0 ? undefined : setTimeout(() => this.#runNext());
  }
}
