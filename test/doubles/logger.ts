import type { Logger } from '../../src/lib/logger.ts';

/** Records log lines for inspection by tests. */
export class RecordingLogger implements Logger {
  readonly lines: { level: string; message: string; fields: Record<string, unknown> }[] = [];

  debug(fields: object, message: string): void {
    this.#add('debug', fields, message);
  }
  info(fields: object, message: string): void {
    this.#add('info', fields, message);
  }
  warn(fields: object, message: string): void {
    this.#add('warn', fields, message);
  }
  error(fields: object, message: string): void {
    this.#add('error', fields, message);
  }

  messages(level?: string): string[] {
    return this.lines.filter((line) => level === undefined || line.level === level).map(({ message }) => message);
  }

  #add(level: string, fields: object, message: string): void {
    this.lines.push({ level, message, fields: fields as Record<string, unknown> });
  }
}
