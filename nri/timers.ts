/** Longer timeouts overflow in Node and fire at once. */
const maxTimeoutMs = 2 ** 31 - 1;

/** Runs `action` once after `ms`, unless the returned function is called before. */
export function after(ms: number, action: () => void): () => void {
  const timer = setTimeout(action, Math.min(Math.max(0, ms), maxTimeoutMs));
  return () => clearTimeout(timer);
}

/** Waits. Resolves early, with `false`, when the signal aborts; never rejects. */
export function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false);
    const onAbort = () => {
      cancel();
      resolve(false);
    };
    const cancel = after(ms, () => {
      signal.removeEventListener('abort', onAbort);
      resolve(true);
    });
    signal.addEventListener('abort', onAbort, { once: true });
  });
}

/** Waits for work that cannot fail, but no longer than `ms`. Resolves to whether the work finished first. */
export function settledWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = after(ms, () => resolve(false));
    work.finally(cancel).then(
      () => resolve(true),
      () => resolve(true),
    );
  });
}

/** Delays between attempts: bounds of the first and of all others, ms, and a number from 0 up to 1. */
export interface BackoffLimits {
  initialMs: number;
  maxMs: number;
  random: () => number;
}

/**
 * The delay after so many attempts, ms: the bound doubles each time, and the delay is somewhere in its upper half, so that
 * many nodes do not connect in step and none connects at once.
 */
export function backoffMs(attempts: number, { initialMs, maxMs, random }: BackoffLimits): number {
  return Math.min(maxMs, initialMs * 2 ** attempts) * (0.5 + 0.5 * random());
}
