import type { Clock } from './clock.ts';

export interface RateLimitOptions {
  /** Number of calls allowed at once. */
  burst: number;
  /** Interval after which one more call is allowed, ms. */
  everyMs: number;
  clock: Clock;
}

/** Token bucket for each key: a burst, then one call per interval. Keys whose bucket is full again are forgotten. */
export class RateLimit {
  readonly #options: RateLimitOptions;
  /** Times at which each key's bucket is full again, ms of the clock, in the order of the last calls. */
  readonly #fullAtMs = new Map<string, number>();

  constructor(options: RateLimitOptions) {
    this.#options = options;
  }

  /** Takes a token of the key. @returns whether a token was left */
  take(key: string): boolean {
    const nowMs = this.#options.clock.nowMs();
    for (const [each, fullAtMs] of this.#fullAtMs) {
      // Stops at the first bucket that is not full, since a search of all buckets takes longer with each pod. A full bucket
      // behind it is forgotten later.
      if (fullAtMs > nowMs) break;
      this.#fullAtMs.delete(each);
    }
    if (this.waitMs(key) > 0) return false;
    const fromMs = Math.max(nowMs, this.#fullAtMs.get(key) ?? nowMs);
    this.#fullAtMs.delete(key);
    this.#fullAtMs.set(key, fromMs + this.#options.everyMs);
    return true;
  }

  waitMs(key: string): number {
    const { burst, everyMs, clock } = this.#options;
    const nowMs = clock.nowMs();
    const missingMs = (this.#fullAtMs.get(key) ?? nowMs) - nowMs;
    return Math.max(0, Math.ceil(missingMs - (burst - 1) * everyMs));
  }
}
