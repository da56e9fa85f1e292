import { onAbort } from '../../lib/abort.ts';

/**
 * Limit for libuv's four threads that may wait in the kernel for its lock of all links, in netlink requests and settings of
 * interfaces. The fourth remains for files, such as that of the health check, unless an access to sysfs waits for the
 * kernel too. koffi itself refuses more than 256 calls at once.
 */
const mostCalls = 3;
let running = 0;
const waiting = new Set<() => void>();

/** Runs `start` when a thread is free for its call; the call ends with {@link leaveThread}. */
export function enterThread(start: () => void): void {
  if (running < mostCalls) {
    running++;
    start();
  } else waiting.add(start);
}

/** Passes the place of an ended call to the call that has waited longest. */
export function leaveThread(): void {
  const [next] = waiting;
  if (next === undefined) running--;
  else {
    waiting.delete(next);
    next();
  }
}

/**
 * Waits until a thread is free for a call, which ends when the result is disposed. @throws the signal's reason if it fires
 * before
 */
export async function takeThread(signal: AbortSignal): Promise<Disposable> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  enterThread(resolve);
  using _ = onAbort(signal, () => waiting.delete(resolve) && reject(signal.reason));
  await promise;
  return { [Symbol.dispose]: leaveThread };
}
