/** Logger that the library writes to: fields first, then a constant message. A pino logger has this shape. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** A logger that drops everything: the default. */
export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };
