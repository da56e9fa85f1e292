import type { Clock } from './clock.ts';

export interface RateLimitOptions {
  /** How many are allowed at once. */
  burst: number;
  /** After the burst, one more is allowed per interval. */
  everyMs: number;
  clock: Clock;
}

/** Token bucket for each key: a burst, then one per interval. Keys whose bucket is full again are forgotten. */
export class RateLimit {
  readonly #options: RateLimitOptions;
  readonly #buckets = new Map<string, { tokens: number; atMs: number }>();

  constructor(options: RateLimitOptions) {
    this.#options = options;
  }

  /** Takes a token of the key. @returns whether there was one */
  take(key: string): boolean {
    this.#forgetFull();
    const tokens = this.#tokens(key);
    if (tokens < 1) return false;
    this.#buckets.set(key, { tokens: tokens - 1, atMs: this.#options.clock.nowMs() });
    return true;
  }

  /** Time until the key has a token, ms. */
  waitMs(key: string): number {
    return Math.max(0, Math.ceil((1 - this.#tokens(key)) * this.#options.everyMs));
  }

  get size(): number {
    return this.#buckets.size;
  }

  #tokens(key: string): number {
    const { burst, everyMs, clock } = this.#options;
    const bucket = this.#buckets.get(key);
    if (bucket === undefined) return burst;
    return Math.min(burst, bucket.tokens + (clock.nowMs() - bucket.atMs) / everyMs);
  }

  #forgetFull(): void {
    for (const key of this.#buckets.keys()) {
      if (this.#tokens(key) >= this.#options.burst) this.#buckets.delete(key);
    }
  }
}
