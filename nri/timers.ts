/** Longest timeout in Node.js, ms: longer ones overflow and fire at once. */
const maxTimeoutMs = 2 ** 31 - 1;

/** Runs `action` once after `ms`, unless the returned function is called before. */
export function after(ms: number, action: () => void): () => void {
  const timer = setTimeout(action, Math.min(Math.max(0, ms), maxTimeoutMs));
  return () => clearTimeout(timer);
}

/** Calls `callback` when the signal aborts, or at once if it already has. Disposing the result cancels the call. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): Disposable {
  if (signal?.aborted) callback();
  else signal?.addEventListener('abort', callback, { once: true });
  return { [Symbol.dispose]: () => signal?.removeEventListener('abort', callback) };
}

/** Waits for `ms`, or until the signal aborts if that is earlier; never rejects. */
export async function pause(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const cancel = after(ms, resolve);
  using _ = onAbort(signal, resolve);
  await promise;
  cancel();
}

/** Waits for work that cannot fail, but no longer than `ms`. Resolves to `true` if the work finished first. */
export function settledWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  return new Promise((resolve) => {
    const cancel = after(ms, () => resolve(false));
    const settle = () => resolve(true);
    work.finally(cancel).then(settle, settle);
  });
}

/** Bounds of the first delay and of all delays, ms, and a source of random numbers from 0 up to 1. */
export interface BackoffLimits {
  initialMs: number;
  maxMs: number;
  random: () => number;
}

/**
 * Returns the delay after `attempts` attempts, ms. The bound doubles with each attempt, and the delay is random in its upper
 * half, so that many nodes do not connect in step and none connects at once.
 */
export function backoffMs(attempts: number, { initialMs, maxMs, random }: BackoffLimits): number {
  return Math.min(maxMs, initialMs * 2 ** attempts) * (0.5 + 0.5 * random());
}
