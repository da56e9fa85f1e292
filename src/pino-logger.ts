import { pino } from 'pino';
import type { Logger } from './logger.ts';

/** The driver's log: a line of JSON for each message, on the standard output. @param level least one that is logged */
export function createLogger(level: string): Logger & { fatal(fields: object, message: string): void } {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime });
}
