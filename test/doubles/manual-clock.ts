import type { Clock, Deadline } from '../../src/lib/clock.ts';

interface Sleeper {
  endsAtMs: number;
  wake: () => void;
}

/** A clock that stands still until a test moves it. */
export class ManualClock implements Clock {
  #nowMs = 0;
  readonly #sleepers = new Set<Sleeper>();

  nowMs(): number {
    return this.#nowMs;
  }

  /** Wakes sleepers that are due, in the order of their times. */
  advance(ms: number): void {
    this.#nowMs += ms;
    const due = [...this.#sleepers].filter(({ endsAtMs }) => endsAtMs <= this.#nowMs);
    for (const sleeper of due.sort((left, right) => left.endsAtMs - right.endsAtMs)) {
      this.#sleepers.delete(sleeper);
      sleeper.wake();
    }
  }

  /** Remaining times of the sleepers, the shortest first. */
  sleeping(): number[] {
    return [...this.#sleepers].map(({ endsAtMs }) => endsAtMs - this.#nowMs).sort((left, right) => left - right);
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    if (signal?.aborted) return Promise.reject(signal.reason);
    const sleeper = { endsAtMs: this.#nowMs + ms, wake: resolve };
    this.#sleepers.add(sleeper);
    const onAbort = () => {
      this.#sleepers.delete(sleeper);
      reject(signal?.reason);
    };
    signal?.addEventListener('abort', onAbort, { once: true });
    return promise.finally(() => signal?.removeEventListener('abort', onAbort));
  }

  deadline(timeoutMs: number, parent?: AbortSignal): Deadline {
    const endsAtMs = this.#nowMs + timeoutMs;
    const controller = new AbortController();
    const stop = new AbortController();
    const signal = parent === undefined ? stop.signal : AbortSignal.any([parent, stop.signal]);
    this.sleep(timeoutMs, signal).then(
      () => controller.abort(new DOMException(`deadline of ${timeoutMs} ms passed`, 'TimeoutError')),
      () => parent?.aborted && controller.abort(parent.reason),
    );
    return {
      signal: controller.signal,
      remainingMs: () => Math.max(0, endsAtMs - this.#nowMs),
      [Symbol.dispose]: () => stop.abort(),
    };
  }
}
