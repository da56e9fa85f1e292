import type { Clock } from '../clock.ts';

const firstMs = 500;
const lastMs = 5_000;

/** Repeats work in the background: after failures with growing pauses, or once after a given time. */
export class Retry implements Disposable {
  readonly #clock: Clock;
  readonly #work: () => void;
  #timer: AbortController | undefined;
  #attempts = 0;
  #isOver = false;

  constructor(clock: Clock, work: () => void) {
    this.#clock = clock;
    this.#work = work;
  }

  /** Failures in a row. */
  get attempts(): number {
    return this.#attempts;
  }

  /** After a failure. @returns the pause, in milliseconds */
  schedule(): number {
    const pauseMs = Math.min(firstMs * 2 ** this.#attempts, lastMs);
    this.#attempts++;
    this.after(pauseMs);
    return pauseMs;
  }

  after(pauseMs: number): void {
    this.cancel();
    if (this.#isOver) return;
    const timer = new AbortController();
    this.#timer = timer;
    this.#clock.sleep(pauseMs, timer.signal).then(
      () => this.#work(),
      () => undefined,
    );
  }

  /** Drops what is scheduled. */
  cancel(): void {
    this.#timer?.abort();
    this.#timer = undefined;
  }

  /** After a success. */
  reset(): void {
    this.#attempts = 0;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    this.cancel();
  }
}
