import type { Clock } from './clock.ts';

/** Pauses after failures, ms. Each pause is twice the previous one, up to the longest. */
export interface Pauses {
  firstMs: number;
  longestMs: number;
}

/** Returns the pause after a failure, ms. @param earlierFailures number of consecutive failures before this one */
export function pauseMs(earlierFailures: number, { firstMs, longestMs }: Pauses): number {
  return Math.min(firstMs * 2 ** earlierFailures, longestMs);
}

/** Repeats work in the background: with growing pauses after failures, or once after a given time. */
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

  /** Creates a backoff. @param pauses after `quietMs` without failures, the shortest pause applies again */
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
   * Records a success: `attempts` starts again at 0. The pauses do not become shorter at once, for work that soon fails again,
   * such as keeping a VF in place that a process keeps moving. A scheduled retry stays scheduled.
   */
  reset(): void {
    this.#attempts = 0;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    this.cancel();
  }
}
