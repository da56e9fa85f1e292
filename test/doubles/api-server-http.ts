import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { Activity } from './activity.ts';
import { type Fault, Faults, type LoggedRequest } from './api-server-log.ts';
import type { ApiRequests } from './api-server-requests.ts';
import { ApiStatusError } from './api-server-status.ts';
import type { ObjectStore } from './api-server-store.ts';
import { WatchStream } from './api-server-watch.ts';

/** The HTTP side of the API server double: logs requests, applies faults, and has them answered. */
export class ApiListener implements AsyncDisposable {
  readonly log: LoggedRequest[] = [];
  readonly faults = new Faults();
  readonly watches = new Set<WatchStream>();
  readonly activity = new Activity('API server double');
  readonly #requests: ApiRequests;
  readonly #store: ObjectStore;
  readonly #token: string | undefined;
  readonly #server: Server;
  #closing: Promise<void> | undefined;

  constructor(store: ObjectStore, requests: ApiRequests, token: string | undefined) {
    this.#store = store;
    this.#requests = requests;
    this.#token = token;
    this.#server = createServer((message, response) => void this.#handle(message, response));
    store.onChange(() => this.activity.wake());
  }

  /** Listens on a free port of 127.0.0.1. */
  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  dropConnections(): void {
    this.#server.closeAllConnections();
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#closing ??= new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
    return this.#closing;
  }

  async #handle(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(message.url ?? '/', 'http://localhost');
    const logged = newLogEntry(message, url);
    this.log.push(logged);
    response.once('close', () => {
      logged.endedMs = performance.now();
      this.activity.wake();
    });
    const send = (status: number, body: object, headers: Record<string, string> = {}) => {
      logged.status = status;
      if (response.destroyed) return;
      response.writeHead(status, { 'Content-Type': 'application/json', ...headers }).end(JSON.stringify(body));
    };
    try {
      const body = await text(message);
      if (body !== '') logged.body = JSON.parse(body);
      this.activity.wake();
      for (const fault of this.faults.take(logged)) await apply(fault);
      if (this.#token !== undefined && logged.authorization !== `Bearer ${this.#token}`) {
        throw new ApiStatusError(401, 'Unauthorized');
      }
      if (!logged.isWatch) return send(logged.method === 'POST' ? 201 : 200, this.#requests.answer(logged));
      logged.status = 200;
      await this.#watch(logged, response);
    } catch (error) {
      const known = error instanceof ApiStatusError ? error : new ApiStatusError(500, String(error));
      const { retryAfterSeconds } = known.details;
      const headers = retryAfterSeconds === undefined ? {} : { 'Retry-After': String(retryAfterSeconds) };
      send(known.httpStatus, known.toStatus(), headers);
    }
  }

  async #watch(request: LoggedRequest, response: ServerResponse): Promise<void> {
    const watch = new WatchStream(this.#store, this.#requests.selection(request), response);
    this.watches.add(watch);
    this.activity.wake();
    await watch.run(request.query.resourceVersion).finally(() => this.watches.delete(watch));
  }
}

function newLogEntry(message: IncomingMessage, url: URL): LoggedRequest {
  return {
    method: message.method ?? 'GET',
    path: url.pathname,
    query: Object.fromEntries(url.searchParams),
    userAgent: message.headers['user-agent'] ?? '',
    contentType: message.headers['content-type'],
    authorization: message.headers.authorization,
    body: undefined,
    isWatch: url.searchParams.has('watch'),
    startedMs: performance.now(),
    endedMs: undefined,
    status: undefined,
  };
}

async function apply(fault: Fault): Promise<void> {
  if (fault.kind === 'delay') await sleep(fault.ms);
  else if (fault.kind === 'hang') await fault.released;
  else throw fault.error;
}
