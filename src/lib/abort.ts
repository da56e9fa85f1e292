/** Calls `callback` when the signal aborts, or at once if it already has. Disposing the result cancels the call. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): Disposable {
  if (signal?.aborted) callback();
  else signal?.addEventListener('abort', callback, { once: true });
  return { [Symbol.dispose]: () => signal?.removeEventListener('abort', callback) };
}

/** Waits for a promise until the signal aborts; the work behind the promise continues. @throws the error from `onTooLate` */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal, onTooLate: () => Error): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  using _ = onAbort(signal, () => reject(onTooLate()));
  return await Promise.race([promise, aborted]);
}
