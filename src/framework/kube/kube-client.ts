import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { onAbort } from '../../lib/abort.ts';
import type { Clock, Deadline } from '../../lib/clock.ts';
import { errnoCode } from '../../lib/errors.ts';
import type { ApiAccess } from './api-access.ts';
import { KubeConnection } from './connection.ts';
import { isKubeError, KubeError, toKubeError } from './errors.ts';
import { readJsonLines } from './json-lines.ts';

/** Time limit for one answer, unless the request has its own. */
const defaultTimeoutMs = 30_000;
/**
 * Longest duration of a watch, ms. API servers end a watch within an hour: a longer one has lost its server behind a proxy that
 * did not notice.
 */
const longestWatchMs = 70 * 60_000;
/**
 * Shortest duration after which a cut watch is no failure, ms: it was ended by a proxy that limits connections, or by an API
 * server that stopped.
 */
const leastWatchMs = 10_000;
/** Number of attempts for a request whose server asks to retry later; then the refusal is passed on. */
const maxAttempts = 5;

/** A request to read or watch. */
export interface KubeQuery {
  /** Path from the root: `/api/v1/nodes/n`. */
  path: string;
  query?: Record<string, string>;
  /** Media type of the answer; default `application/json`. */
  accept?: string;
  signal?: AbortSignal;
}

export interface KubeRequest extends KubeQuery {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  body?: object;
  /** Media type of the body; default `application/json`. */
  contentType?: string;
  timeoutMs?: number;
}

export interface WatchEvent<T> {
  type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK' | 'ERROR';
  object: T;
}

/** Single requests to the API server: see {@link KubeClient}. */
export interface KubeRequests {
  request<T>(request: KubeRequest): Promise<T>;
}

export interface KubeApi extends KubeRequests {
  watch<T>(request: KubeQuery): AsyncGenerator<WatchEvent<T>, void, void>;
}

export interface KubeClientOptions {
  clock: Clock;
  /** User agent, as it appears in the API server's audit log. */
  userAgent: string;
}

/**
 * Client of the Kubernetes API as on the wire: JSON in, JSON out, without models. The reasons for not using the generated
 * client are in docs/decisions/0008-plain-json-api-client.md.
 */
export class KubeClient implements KubeApi, Disposable {
  readonly #connection: KubeConnection;
  readonly #options: KubeClientOptions;

  constructor(access: ApiAccess, options: KubeClientOptions) {
    this.#connection = new KubeConnection(access);
    this.#options = options;
  }

  /**
   * Sends a request. If the server is too busy (429, 503) and says when to retry, sends it again then.
   * @throws KubeError; the signal's reason if it is aborted
   */
  async request<T>(request: KubeRequest): Promise<T> {
    return await this.#retried(request, JSON.parse);
  }

  /** Sends a request as {@link request} does, and returns the response as text, for example logs. */
  async requestText(request: KubeRequest): Promise<string> {
    return await this.#retried(request, String);
  }

  async #retried<T>(request: KubeRequest, parse: (text: string) => T): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#ask(request, parse);
      } catch (error) {
        const isBusy = isKubeError(error) && (error.httpStatus === 429 || error.httpStatus === 503);
        if (!isBusy || error.retryAfterMs === undefined || attempt === maxAttempts) throw error;
        await this.#options.clock.sleep(error.retryAfterMs, request.signal);
      }
    }
  }

  /**
   * Streams changes to the objects of a list, until the server ends the watch (within an hour), a proxy cuts it after more than
   * ten seconds, or the signal aborts.
   * @param request path and query of the list, with the `resourceVersion` to start from
   * @throws KubeError, also for an `ERROR` event: `api-expired` when the version is too old
   */
  async *watch<T>(request: KubeQuery): AsyncGenerator<WatchEvent<T>, void, void> {
    const query = { ...request.query, watch: '1', allowWatchBookmarks: 'true' };
    const subject = `WATCH ${request.path}`;
    const { clock } = this.#options;
    using deadline = clock.deadline(defaultTimeoutMs, request.signal);
    using life = clock.deadline(longestWatchMs);
    let answer: IncomingMessage | undefined;
    let answeredMs = Number.POSITIVE_INFINITY;
    using _ = onAbort(request.signal, () => answer?.destroy());
    using _over = onAbort(life.signal, () => answer?.destroy());
    try {
      answer = await this.#send({ ...request, method: 'GET', query, signal: deadline.signal });
      if (answer.statusCode !== 200) throw await this.#refusal(subject, answer);
      // From here on, the server may be silent until the watch reaches its longest duration.
      deadline[Symbol.dispose]();
      answeredMs = clock.nowMs();
      for await (const event of readJsonLines<WatchEvent<T>>(answer)) {
        if (event.type === 'ERROR') {
          const { code = 0 } = event.object as { code?: number };
          throw toKubeError(subject, code, JSON.stringify(event.object));
        }
        yield event;
      }
      // Ended by the server or by our own signal.
      request.signal?.throwIfAborted();
    } catch (error) {
      // The next watch continues from the version of the last event.
      if (life.signal.aborted && !request.signal?.aborted) return;
      const failure = toFailure(error, subject, deadline, request);
      if (isKubeError(failure, 'api-unreachable') && clock.nowMs() - answeredMs > leastWatchMs) return;
      throw failure;
    } finally {
      answer?.destroy();
    }
  }

  /** Closes the connections; requests in flight fail. */
  [Symbol.dispose](): void {
    this.#connection[Symbol.dispose]();
  }

  async #ask<T>(request: KubeRequest, parse: (text: string) => T): Promise<T> {
    const subject = `${request.method} ${request.path}`;
    const { timeoutMs = defaultTimeoutMs } = request;
    using deadline = this.#options.clock.deadline(timeoutMs, request.signal);
    try {
      const answer = await this.#send({ ...request, signal: deadline.signal });
      if ((answer.statusCode ?? 0) >= 300) throw await this.#refusal(subject, answer);
      return parse(await readText(answer));
    } catch (error) {
      throw toFailure(error, subject, deadline, request);
    }
  }

  async #refusal(subject: string, answer: IncomingMessage): Promise<KubeError> {
    return toKubeError(subject, answer.statusCode ?? 0, await readText(answer), answer.headers['retry-after']);
  }

  async #send(request: KubeRequest): Promise<IncomingMessage> {
    const { server } = this.#connection;
    const query = request.query === undefined ? '' : `?${new URLSearchParams(request.query)}`;
    const body = request.body === undefined ? undefined : JSON.stringify(request.body);
    const { headers, ...connection } = await this.#connection.options();
    const options = {
      ...connection,
      ...server,
      path: `${server.path}${request.path}${query}`,
      method: request.method,
      headers: {
        ...(headers as Record<string, string>),
        accept: request.accept ?? 'application/json',
        'user-agent': this.#options.userAgent,
        ...(body !== undefined && {
          'content-type': request.contentType ?? 'application/json',
          'content-length': String(Buffer.byteLength(body)),
        }),
      },
    };
    const send = () => {
      const sent = server.protocol === 'http:' ? httpRequest(options) : httpsRequest(options);
      // Not passed as an option: Node.js would then watch the ends of all streams for it.
      onAbort(request.signal, () => sent.destroy(request.signal?.reason as Error));
      sent.end(body);
      return sent;
    };
    for (;;) {
      const sent = send();
      try {
        return await answerOf(sent);
      } catch (error) {
        // Probably no server saw the request: the server closed the idle connection just as it was reused, or another server
        // now has the address and does not know the connection. Each attempt uses up one idle connection, so the last attempt
        // opens a new one. Repeating a request that was seen does no harm: writes carry the version that they replace.
        if (!sent.reusedSocket || errnoCode(error) !== 'ECONNRESET') throw error;
      }
    }
  }
}

function answerOf(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => request.once('response', resolve).on('error', reject));
}

/** Reads the whole response. Uses events, which take less time than a stream's iterator. */
function readText(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  return new Promise((resolve, reject) => {
    answer.on('data', (chunk: Buffer) => chunks.push(chunk));
    answer.once('end', () => resolve(Buffer.concat(chunks).toString()));
    answer.once('error', reject);
  });
}

/** Returns the error to throw: the caller's reason if the caller aborted, a timeout, invalid JSON, or an unreachable server. */
function toFailure(error: unknown, subject: string, deadline: Deadline, request: Partial<KubeRequest>): unknown {
  if (request.signal?.aborted) return request.signal.reason;
  if (error instanceof KubeError) return error;
  const { timeoutMs = defaultTimeoutMs } = request;
  const details = { cause: error, retriable: true };
  if (error instanceof SyntaxError) {
    const hint = 'another server, such as a proxy, answers in its place: check the address in the kubeconfig';
    return new KubeError('api-failed', `${subject}: the answer is not JSON`, { ...details, hint });
  }
  if (!deadline.signal.aborted) {
    return new KubeError('api-unreachable', `${subject}: no answer from the API server`, details);
  }
  return new KubeError('api-timeout', `${subject}: no answer from the API server within ${timeoutMs} ms`, details);
}
