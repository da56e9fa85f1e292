import type { Clock } from './clock.ts';

export interface RateLimitOptions {
  /** Calls allowed at once. */
  burst: number;
  /** Interval, ms, at which one more call is allowed after the burst. */
  everyMs: number;
  clock: Clock;
}

/** Token bucket for each key: a burst, then one per interval. Keys whose bucket is full again are forgotten. */
export class RateLimit {
  readonly #options: RateLimitOptions;
  /** Times, ms of the clock, at which each key's bucket is full again; the key that was taken last comes last. */
  readonly #fullAtMs = new Map<string, number>();

  constructor(options: RateLimitOptions) {
    this.#options = options;
  }

  /** Takes a token of the key. @returns whether a token was left */
  take(key: string): boolean {
    const nowMs = this.#options.clock.nowMs();
    for (const [each, fullAtMs] of this.#fullAtMs) {
      // Later ones may be full, too: they are forgotten after this one, since a look at all takes longer with each pod.
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
