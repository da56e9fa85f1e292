import { NriError, type NriErrorDetails, toError } from '../errors.ts';

export const StatusCode = {
  ok: 0,
  cancelled: 1,
  unknown: 2,
  invalidArgument: 3,
  deadlineExceeded: 4,
  notFound: 5,
  alreadyExists: 6,
  permissionDenied: 7,
  resourceExhausted: 8,
  failedPrecondition: 9,
  aborted: 10,
  outOfRange: 11,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  dataLoss: 15,
  unauthenticated: 16,
} as const;
export type StatusCode = (typeof StatusCode)[keyof typeof StatusCode];

/**
 * A status other than OK. A client throws it when the peer answers with such a status; a method throws it to choose the status
 * of its answer. `code` is `ttrpc-` and the name of the status: `ttrpc-deadlineExceeded`.
 */
export class TtrpcError extends NriError {
  readonly status: number;

  constructor(status: number, message: string, details: NriErrorDetails = {}) {
    super(`ttrpc-${statusName(status)}`, message, details);
    this.status = status;
  }
}

/** `call-timeout`: no answer within the caller's time limit. The peer is not notified. */
export class CallTimeoutError extends NriError {
  constructor(method: string, timeoutMs: number) {
    super('call-timeout', `${method} was not answered within ${timeoutMs} ms`);
  }
}

/** `ttrpc-protocol`: the peer sent something other than a response on the stream of a call. */
export class TtrpcProtocolError extends NriError {
  constructor(message: string, cause?: unknown) {
    super('ttrpc-protocol', message, { cause });
  }
}

/** Returns the status with which a failed method is answered: its own, or `unknown` as in Go. */
export function toStatus(thrown: unknown): { code: number; message: string } {
  const code = thrown instanceof TtrpcError && thrown.status !== StatusCode.ok ? thrown.status : StatusCode.unknown;
  const { name, message } = toError(thrown);
  // A library may have replaced the message by any value. The pod's user needs some text.
  const text = typeof message === 'string' && message !== '' ? message : name;
  // Go refuses a whole message because of one lone surrogate in one of its strings.
  return { code, message: text.toWellFormed() };
}

function statusName(status: number): string {
  const found = Object.entries(StatusCode).find(([, code]) => code === status);
  return found?.[0] ?? String(status);
}
