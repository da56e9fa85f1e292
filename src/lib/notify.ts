import { toError } from './errors.ts';
import type { Logger } from './logger.ts';

/**
 * Calls a callback of the framework's user that only informs. Logs its errors, so that the framework's work continues.
 * @param name name of the option that holds the callback, for the log
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
