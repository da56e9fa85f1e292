import type { Clock } from './clock.ts';

/** Pauses after failures, ms: each is twice the one before, up to the longest. */
export interface Pauses {
  firstMs: number;
  longestMs: number;
}

/** @param earlierFailures number of consecutive failures before this one */
export function pauseMs(earlierFailures: number, { firstMs, longestMs }: Pauses): number {
  return Math.min(firstMs * 2 ** earlierFailures, longestMs);
}

/** Repeats work in the background, after failures with growing pauses, or once after a given time. */
export class Backoff implements Disposable {
  readonly #clock: Clock;
  readonly #pauses: Pauses & { quietMs: number };
  readonly #work: () => void;
  #timer: AbortController | undefined;
  #attempts = 0;
  /** Consecutive failures; reset after `quietMs` without one. */
  #recent = 0;
  #lastFailureMs = Number.NEGATIVE_INFINITY;
  #isOver = false;

  /** @param pauses start with the shortest one again after `quietMs` without failures */
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

  /** Schedules a retry after a failure. @returns the pause, ms */
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
        // The timer was cancelled or restarted meanwhile.
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

  /**
   * Cancels the retry after a success. Pauses stay long for work that soon fails again, such as a VF that a process keeps
   * moving.
   */
  reset(): void {
    this.#attempts = 0;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    this.cancel();
  }
}
