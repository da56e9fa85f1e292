import { pino } from 'pino';
import type { Logger } from '../lib/logger.ts';

/** The driver's log: one line of JSON per message, on standard output. @param level lowest level that is logged */
export function createLogger(level: string): Logger & { fatal(fields: object, message: string): void } {
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime });
}
