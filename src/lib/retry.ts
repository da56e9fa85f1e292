import type { Clock } from './clock.ts';

const firstMs = 500;
const lastMs = 5_000;
/** After this time without failures, pauses start with the shortest one again. */
const quietMs = 10_000;

/** Repeats work in the background: after failures with growing pauses, or once after a given time. */
export class Retry implements Disposable {
  readonly #clock: Clock;
  readonly #work: () => void;
  #timer: AbortController | undefined;
  #attempts = 0;
  /** Failures since the last quiet time. */
  #recent = 0;
  #lastFailureMs = Number.NEGATIVE_INFINITY;
  #isOver = false;

  constructor(clock: Clock, work: () => void) {
    this.#clock = clock;
    this.#work = work;
  }

  /** Failures in a row. */
  get attempts(): number {
    return this.#attempts;
  }

  /** Whether the work is going to be repeated. */
  get isScheduled(): boolean {
    return this.#timer !== undefined;
  }

  /** After a failure. @returns the pause, in milliseconds */
  schedule(): number {
    const nowMs = this.#clock.nowMs();
    if (this.#attempts === 0 && nowMs - this.#lastFailureMs > quietMs) this.#recent = 0;
    const pauseMs = Math.min(firstMs * 2 ** this.#recent, lastMs);
    this.#attempts++;
    this.#recent++;
    this.#lastFailureMs = nowMs;
    this.after(pauseMs);
    return pauseMs;
  }

  after(pauseMs: number): void {
    this.cancel();
    if (this.#isOver) return;
    const timer = new AbortController();
    this.#timer = timer;
    this.#clock.sleep(pauseMs, timer.signal).then(
      () => {
        this.#timer = undefined;
        this.#work();
      },
      () => undefined,
    );
  }

  /** Drops what is scheduled. */
  cancel(): void {
    this.#timer?.abort();
    this.#timer = undefined;
  }

  /** After a success. What succeeds and soon fails again, such as a VF that a process keeps moving, has the longer pauses. */
  reset(): void {
    this.#attempts = 0;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    this.cancel();
  }
}
