import { inspect } from 'node:util';

export interface NriErrorDetails {
  cause?: unknown;
  /** Remedy for the user, as a clause. */
  hint?: string;
}

/**
 * Base class of every error that this library raises. `code` is for programs and stays stable (compare it rather than
 * the class: two copies of the library may be loaded); the message is for people; `cause` keeps the original.
 */
export class NriError extends Error {
  readonly code: string;
  readonly hint: string | undefined;

  constructor(code: string, message: string, details: NriErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = details.hint;
  }
}

/** `connection-closed`: the connection can neither send nor receive any more. `cause` is the failure that closed it, if any. */
export class ConnectionClosedError extends NriError {
  constructor(subject: string, cause?: unknown) {
    super('connection-closed', `${subject} is closed`, { cause });
  }
}

/** `bad-option`: an option with an invalid value. Thrown before anything is opened. */
export class OptionError extends NriError {
  constructor(option: string, message: string, details: NriErrorDetails = {}) {
    super('bad-option', `option ${option}: ${message}`, details);
  }
}

export function toError(thrown: unknown): Error {
  if (thrown instanceof Error) return thrown;
  const text = typeof thrown === 'string' ? thrown : inspect(thrown);
  return new NriError('not-an-error', text, { cause: thrown });
}
