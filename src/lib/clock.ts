import { onAbort } from './abort.ts';

/** An `AbortSignal` that aborts at a deadline. Disposing cancels the timer. */
export interface Deadline extends Disposable {
  readonly signal: AbortSignal;
  /** Milliseconds left, never below 0. */
  remainingMs(): number;
}

/** Time as a dependency, so that tests can advance it instead of sleeping. */
export interface Clock {
  /** Monotonic time, ms; only differences are meaningful. */
  nowMs(): number;
  /** Starts a deadline. @param parent signal that also aborts the deadline's signal, with its own reason */
  deadline(timeoutMs: number, parent?: AbortSignal): Deadline;
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** Longest timeout of a Node.js timer: a longer one, such as `Infinity`, would fire at once. */
const maxTimeoutMs = 2 ** 31 - 1;

/** The system clock. It does not use `AbortSignal.timeout`, whose timer does not keep the process alive. */
export const systemClock: Clock = {
  nowMs: () => performance.now(),
  deadline(timeoutMs, parent) {
    const controller = new AbortController();
    const endsAt = performance.now() + timeoutMs;
    const timer = setTimeout(
      () => controller.abort(new DOMException(`deadline of ${timeoutMs} ms passed`, 'TimeoutError')),
      Math.min(timeoutMs, maxTimeoutMs),
    );
    const listener = onAbort(parent, () => controller.abort(parent?.reason));
    return {
      signal: controller.signal,
      remainingMs: () => Math.max(0, endsAt - performance.now()),
      [Symbol.dispose]() {
        clearTimeout(timer);
        listener[Symbol.dispose]();
      },
    };
  },
  async sleep(ms, signal) {
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    using stack = new DisposableStack();
    stack.adopt(setTimeout(resolve, Math.min(ms, maxTimeoutMs)), clearTimeout);
    stack.use(onAbort(signal, () => reject(signal?.reason)));
    await promise;
  },
};

/**
 * Runs a task repeatedly, with a pause before each run, until the signal aborts. Never rejects: the task must handle its
 * failures.
 */
export async function repeat(clock: Clock, pauseMs: number, signal: AbortSignal, task: () => unknown): Promise<void> {
  try {
    for (;;) {
      await clock.sleep(pauseMs, signal);
      await task();
    }
  } catch {
    // The signal has aborted.
  }
}

/**
 * Waits for a promise for a limited time, or until the signal aborts.
 * @returns whether the promise was fulfilled
 * @throws the error with which the promise was rejected
 */
export async function resolvesWithin(
  clock: Clock,
  timeoutMs: number,
  promise: Promise<unknown>,
  signal?: AbortSignal,
): Promise<boolean> {
  const over = new AbortController();
  using _ = onAbort(signal, () => over.abort(isOver));
  const late = clock.sleep(timeoutMs, over.signal).catch(() => undefined);
  try {
    return await Promise.race([promise.then(() => true), late.then(() => false)]);
  } finally {
    over.abort(isOver);
  }
}

/** Constant reason: without one, each abort would create an error with its stack. */
const isOver = 'over';
