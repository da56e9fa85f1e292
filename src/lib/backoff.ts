import type { Clock } from './clock.ts';

/** Pauses after failures: each is twice as long as the one before, up to the longest. Milliseconds. */
export interface Pauses {
  firstMs: number;
  longestMs: number;
}

/** @param earlierFailures in a row */
export function pauseMs(earlierFailures: number, { firstMs, longestMs }: Pauses): number {
  return Math.min(firstMs * 2 ** earlierFailures, longestMs);
}

/** Repeats work in the background: after failures with growing pauses, or once after a given time. */
export class Backoff implements Disposable {
  readonly #clock: Clock;
  readonly #pauses: Pauses & { quietMs: number };
  readonly #work: () => void;
  #timer: AbortController | undefined;
  #attempts = 0;
  /** Failures since the last quiet time. */
  #recent = 0;
  #lastFailureMs = Number.NEGATIVE_INFINITY;
  #isOver = false;

  /** @param pauses after `quietMs` without failures, they start with the shortest one again */
  constructor(clock: Clock, pauses: Pauses & { quietMs: number }, work: () => void) {
    this.#clock = clock;
    this.#pauses = pauses;
    this.#work = work;
  }

  get attempts(): number {
    return this.#attempts;
  }

  get isScheduled(): boolean {
    return this.#timer !== undefined;
  }

  /** After a failure. @returns the pause, in milliseconds */
  schedule(): number {
    const nowMs = this.#clock.nowMs();
    if (this.#attempts === 0 && nowMs - this.#lastFailureMs > this.#pauses.quietMs) this.#recent = 0;
    const afterMs = pauseMs(this.#recent++, this.#pauses);
    this.#attempts++;
    this.#lastFailureMs = nowMs;
    this.after(afterMs);
    return afterMs;
  }

  after(ms: number): void {
    this.cancel();
    if (this.#isOver) return;
    const timer = new AbortController();
    this.#timer = timer;
    this.#clock.sleep(ms, timer.signal).then(
      () => {
        // Cancelled, or begun anew, between the end of the pause and this.
        if (this.#timer !== timer) return;
        this.#timer = undefined;
        this.#work();
      },
      () => undefined,
    );
  }

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
