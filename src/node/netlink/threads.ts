import { onAbort } from '../../lib/abort.ts';

/**
 * Maximum number of libuv's four threads that may wait for the kernel's lock of all links, in netlink requests and sysctls.
 * The fourth thread remains for files, such as the file of the health check, unless an access to sysfs also waits for the
 * kernel. koffi itself refuses more than 256 calls at once.
 */
const mostCalls = 3;
let running = 0;
const waiting = new Set<() => void>();

/** Calls `start` when a thread is free. The call that it begins must end with {@link leaveThread}. */
export function enterThread(start: () => void): void {
  if (running < mostCalls) {
    running++;
    start();
  } else waiting.add(start);
}

/** Frees the thread of a call that has ended, for the call that has waited longest. */
export function leaveThread(): void {
  const [next] = waiting;
  if (next === undefined) running--;
  else {
    waiting.delete(next);
    next();
  }
}

/**
 * Waits until a thread is free. Dispose of the result to free the thread again. @throws the signal's reason if it fires
 * before
 */
export async function takeThread(signal: AbortSignal): Promise<Disposable> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  enterThread(resolve);
  using _ = onAbort(signal, () => waiting.delete(resolve) && reject(signal.reason));
  await promise;
  return { [Symbol.dispose]: leaveThread };
}
