import { toError } from './errors.ts';
import type { Logger } from './logger.ts';

/**
 * Calls a callback that only informs foreign code. Logs what it throws or rejects with, so that our own work continues.
 * @param name of the option that holds the callback, for the log
 */
export function notify<Args extends unknown[]>(
  logger: Logger,
  name: string,
  callback: ((...args: Args) => unknown) | undefined,
  ...args: Args
): void {
  const log = (error: unknown) => logger.error({ callback: name, err: toError(error) }, 'callback failed');
  try {
    Promise.resolve(callback?.(...args)).catch(log);
  } catch (error) {
    log(error);
  }
}
