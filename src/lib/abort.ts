/** Calls back when the signal fires, at once if it has fired already, until disposed. */
export function onAbort(signal: AbortSignal | undefined, callback: () => void): Disposable {
  if (signal?.aborted) callback();
  else signal?.addEventListener('abort', callback, { once: true });
  return { [Symbol.dispose]: () => signal?.removeEventListener('abort', callback) };
}

/** Waits for a promise until the signal fires; the work behind the promise continues. @throws what `onTooLate` returns */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal, onTooLate: () => Error): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  using _ = onAbort(signal, () => reject(onTooLate()));
  return await Promise.race([promise, aborted]);
}
