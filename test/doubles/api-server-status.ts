const reasons: Record<number, string> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  409: 'Conflict',
  410: 'Expired',
  422: 'Invalid',
  429: 'TooManyRequests',
};

export interface StatusDetails {
  /** Name of the object; absent in an answer that does not concern one. */
  name?: string;
  retryAfterSeconds?: number;
}

/** An answer other than the requested object; the server sends it as a `Status` object. */
export class ApiStatusError extends Error {
  readonly httpStatus: number;
  readonly details: StatusDetails;
  readonly #reason: string | undefined;

  constructor(httpStatus: number, message: string, details: StatusDetails = {}, reason = reasons[httpStatus]) {
    super(message);
    this.httpStatus = httpStatus;
    this.details = details;
    this.#reason = reason;
  }

  toStatus(): object {
    const { message, details, httpStatus: code } = this;
    return { kind: 'Status', apiVersion: 'v1', status: 'Failure', message, reason: this.#reason, details, code };
  }
}
