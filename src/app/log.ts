import { destination, type Logger, levels, pino, stdTimeFunctions } from 'pino';
import type { Settings } from '../instance/settings.ts';
import { LogRing } from './log-ring.ts';

type Level = Settings['logLevel'];

/** The log of the running driver. */
export interface DriverLog {
  logger: Logger;
  /** The newest lines of level `debug` and above, whatever the level of the output. */
  ring: LogRing;
  /** Switches the output between the operator's level and `debug`. */
  toggleDebug(): void;
}

/** Opens a log. Lines of level `level` and above go to standard output, and all lines to a ring in memory. */
export function openLog(level: Level): DriverLog {
  const ring = new LogRing();
  const output = destination({ fd: 1, sync: true });
  let shown = level;
  const stream = {
    // Makes pino set `lastLevel` before each write.
    [Symbol.for('pino.metadata')]: true,
    lastLevel: 0,
    write(line: string) {
      ring.write(line);
      if (this.lastLevel >= severityOf(shown)) output.write(line);
    },
  };
  const logger = pino({ level: 'debug', base: null, timestamp: stdTimeFunctions.isoTime }, stream);
  return {
    logger,
    ring,
    toggleDebug() {
      const to = shown === level ? 'debug' : level;
      // Logs the change while the output is at level `debug`, which shows it.
      if (to === 'debug') shown = to;
      logger.info({ to }, 'log level changed');
      shown = to;
    },
  };
}

function severityOf(level: Level): number {
  return levels.values[level] ?? Number.POSITIVE_INFINITY;
}
