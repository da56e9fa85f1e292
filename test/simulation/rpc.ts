import type { Process, Simulator } from './simulator.ts';

/** The callee did not exist, or ended before it answered. */
export class Unavailable extends Error {}
export class TimedOut extends Error {}
/** The caller has cancelled the call. */
export class Cancelled extends Error {}

export interface RpcOptions<T> {
  from: Process;
  to: Process;
  what: string;
  timeoutMs: number;
  /** Ends the call on both sides. */
  signal?: AbortSignal;
  /** Runs in the callee. */
  handle: (signal: AbortSignal) => T | Promise<T>;
}

const usualMs = 0.3;
const slowMs = 100;

/** A call from one process to another; either may end meanwhile. */
export function rpc<T>(simulator: Simulator, options: RpcOptions<T>): Promise<T> {
  const { from, to, what, timeoutMs, signal, handle } = options;
  const { tape } = simulator;
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const gone = new AbortController();
  let isOver = false;
  const end = (delayMs: number, answer: () => void) => {
    if (isOver) return;
    isOver = true;
    timer.cancel();
    callee[Symbol.dispose]();
    caller[Symbol.dispose]();
    signal?.removeEventListener('abort', onAbort);
    simulator.schedule(delayMs, from, `answer to ${what}`, answer);
  };
  const tellCallee = (reason: Error) => simulator.schedule(usualMs, to, `end of ${what}`, () => gone.abort(reason));
  const onAbort = () => {
    tellCallee(new Cancelled(`${what} was cancelled`));
    end(0, () => reject(new Cancelled(`${what} was cancelled`)));
  };
  const timer = simulator.schedule(timeoutMs, from, `timeout of ${what}`, () => {
    simulator.trace(from.name, `${what} timed out`);
    tellCallee(new TimedOut(`${what} timed out`));
    end(0, () => reject(new TimedOut(`${what} timed out`)));
  });
  const caller = from.onEnd(() => {
    isOver = true;
    timer.cancel();
    tellCallee(new Cancelled(`the caller of ${what} has ended`));
  });
  const callee = to.onEnd(() => end(usualMs, () => reject(new Unavailable(`${to.name} has ended in ${what}`))));
  if (signal?.aborted) onAbort();
  else signal?.addEventListener('abort', onAbort, { once: true });
  simulator.schedule(tape.delay(usualMs, slowMs), to, what, () => {
    if (isOver) return;
    answerOf(handle, gone.signal).then(
      (value) => to.isAlive && end(tape.delay(usualMs, slowMs), () => resolve(value)),
      (error: unknown) => to.isAlive && end(tape.delay(usualMs, slowMs), () => reject(error)),
    );
  });
  return promise;
}

async function answerOf<T>(handle: (signal: AbortSignal) => T | Promise<T>, signal: AbortSignal): Promise<T> {
  return await handle(signal);
}
