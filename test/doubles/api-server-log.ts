import { ApiStatusError } from './api-server-status.ts';

/** One request as the server saw it. Times are monotonic milliseconds of `performance.now()`. */
export interface LoggedRequest {
  method: string;
  /** Path without the query, e.g. `/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c`. */
  path: string;
  query: Record<string, string>;
  userAgent: string;
  contentType: string | undefined;
  authorization: string | undefined;
  /** The body, parsed if it is JSON. */
  body: unknown;
  isWatch: boolean;
  startedMs: number;
  /** When the whole answer was sent; for a watch, when it ended. `undefined` while it is open. */
  endedMs: number | undefined;
  /** HTTP status; `undefined` until there is one. */
  status: number | undefined;
}

/**
 * The requests to which something applies: part of the path (`/resourceclaims/`), the same after a method
 * (`PATCH /status`), a pattern for `METHOD path`, or a function.
 */
export type RequestMatch = string | RegExp | ((request: LoggedRequest) => boolean);

export function matchesRequest(match: RequestMatch, request: LoggedRequest): boolean {
  if (typeof match === 'function') return match(request);
  if (match instanceof RegExp) return match.test(`${request.method} ${request.path}`);
  const [, method, part = match] = /^([A-Z]+) (.*)$/.exec(match) ?? [];
  return (method === undefined || method === request.method) && request.path.includes(part);
}

/** Properties of a faulty answer besides its HTTP status. */
export interface FailureOptions {
  /** Number of requests that fail; `Infinity` until it is disposed of. Default 1. */
  times?: number;
  message?: string;
  reason?: string;
  /** Also sent as `Retry-After`. */
  retryAfterSeconds?: number;
}

export type Fault =
  | { kind: 'delay'; ms: number }
  | { kind: 'hang'; released: Promise<void> }
  | { kind: 'fail'; error: ApiStatusError };

interface ArmedFault {
  match: RequestMatch;
  fault: Fault;
  timesLeft: number;
}

/** Faults that a test injects into requests. Each method returns a handle that ends the fault. */
export class Faults {
  #armed: ArmedFault[] = [];

  /** Delays answers. */
  delay(match: RequestMatch, ms: number): Disposable {
    return this.#arm({ match, fault: { kind: 'delay', ms }, timesLeft: Infinity });
  }

  /** Answers the next request (or the next `times`) with an error, without executing it. */
  failNext(match: RequestMatch, status: number, options: FailureOptions = {}): Disposable {
    const { times = 1, message = `injected failure ${status}`, reason, retryAfterSeconds } = options;
    const details = retryAfterSeconds === undefined ? {} : { retryAfterSeconds };
    const error = new ApiStatusError(status, message, details, reason);
    return this.#arm({ match, fault: { kind: 'fail', error }, timesLeft: times });
  }

  /** Holds requests until the handle is disposed of; then they are served. */
  hang(match: RequestMatch): Disposable {
    const { promise, resolve } = Promise.withResolvers<void>();
    const armed = this.#arm({ match, fault: { kind: 'hang', released: promise }, timesLeft: Infinity });
    return {
      [Symbol.dispose]() {
        armed[Symbol.dispose]();
        resolve();
      },
    };
  }

  /** The faults for a request, in the order in which they were set up. */
  take(request: LoggedRequest): Fault[] {
    const hits = this.#armed.filter(({ match }) => matchesRequest(match, request));
    for (const hit of hits) hit.timesLeft -= 1;
    this.#armed = this.#armed.filter(({ timesLeft }) => timesLeft > 0);
    return hits.map(({ fault }) => fault);
  }

  #arm(armed: ArmedFault): Disposable {
    this.#armed.push(armed);
    return {
      [Symbol.dispose]: () => {
        this.#armed = this.#armed.filter((other) => other !== armed);
      },
    };
  }
}
