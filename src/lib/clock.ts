/** An `AbortSignal` that fires at a deadline, and the means to drop the timer early. */
export interface Deadline extends Disposable {
  readonly signal: AbortSignal;
  /** Milliseconds left, never below 0. */
  remainingMs(): number;
}

/** Time as a dependency, so that tests can advance it instead of sleeping. */
export interface Clock {
  /** Monotonic milliseconds; only differences are meaningful. */
  nowMs(): number;
  /** @param parent aborts the deadline's signal too, with its own reason */
  deadline(timeoutMs: number, parent?: AbortSignal): Deadline;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The system clock. `AbortSignal.timeout` is not used: its timer does not keep the process alive. */
export const systemClock: Clock = {
  nowMs: () => performance.now(),
  deadline(timeoutMs, parent) {
    const controller = new AbortController();
    const endsAt = performance.now() + timeoutMs;
    const abort = (reason: unknown) => controller.abort(reason);
    const timer = setTimeout(
      () => abort(new DOMException(`deadline of ${timeoutMs} ms passed`, 'TimeoutError')),
      timeoutMs,
    );
    const onParentAbort = () => abort(parent?.reason);
    if (parent?.aborted) onParentAbort();
    else parent?.addEventListener('abort', onParentAbort, { once: true });
    return {
      signal: controller.signal,
      remainingMs: () => Math.max(0, endsAt - performance.now()),
      [Symbol.dispose]() {
        clearTimeout(timer);
        parent?.removeEventListener('abort', onParentAbort);
      },
    };
  },
  sleep: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        clearTimeout(timer);
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', onAbort);
        resolve();
      }, ms);
      signal?.addEventListener('abort', onAbort, { once: true });
    }),
};
