export interface BackoffLimits {
  /** Upper bound of the first delay, ms. */
  initialMs: number;
  /** Upper bound of every later delay, ms. */
  maxMs: number;
  /** A number from 0 up to, but not including, 1. */
  random: () => number;
}

/**
 * Growing delays between attempts: the upper bound doubles each time, and each delay is somewhere in the upper half, so
 * that many nodes do not connect in step and none connects at once.
 */
export class Backoff {
  readonly #limits: BackoffLimits;
  #attempts = 0;

  constructor(limits: BackoffLimits) {
    this.#limits = limits;
  }

  /** The delay before the next attempt, ms. */
  nextMs(): number {
    const { initialMs, maxMs, random } = this.#limits;
    // 2 ** 1024 is Infinity, which min handles.
    const upperMs = Math.min(maxMs, initialMs * 2 ** this.#attempts);
    this.#attempts += 1;
    return upperMs * (0.5 + 0.5 * random());
  }

  reset(): void {
    this.#attempts = 0;
  }
}
