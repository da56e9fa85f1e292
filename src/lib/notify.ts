import { toError } from './errors.ts';
import type { Logger } from './logger.ts';

/**
 * Calls a callback of somebody else's code that only informs it. What it throws, or rejects with, is logged: our own work goes on.
 * @param name of the option that holds the callback, for the log
 */
export function notify<Args extends unknown[]>(
  logger: Pick<Logger, 'error'>,
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
