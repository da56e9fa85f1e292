/** The stub's logger interface: fields first, then a constant message. A pino logger satisfies it as it is. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Logs nothing: the default. */
export const silentLogger: Logger = { debug() {}, info() {}, warn() {}, error() {} };
