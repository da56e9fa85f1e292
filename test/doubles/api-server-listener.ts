import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Activity } from './activity.ts';
import { type DeniedAccess, reviewAccess } from './api-server-access.ts';
import { serveDiscovery } from './api-server-discovery.ts';
import {
  type ResourceRequest,
  readBody,
  selectorOf,
  sendJson,
  serveResource,
  unknownResource,
} from './api-server-http.ts';
import { type Fault, Faults, type LoggedRequest } from './api-server-log.ts';
import { type PodStreams, readPodLog, serveExec } from './api-server-pods.ts';
import type { Registry } from './api-server-registry.ts';
import { type DraVersion, parseResourcePath, type ResourceType, resourceTypes } from './api-server-resources.ts';
import { ApiStatusError } from './api-server-status.ts';
import type { ObjectStore } from './api-server-store.ts';
import { WatchStream } from './api-server-watch.ts';

/** The HTTP side of the API server double: takes requests down, lets them suffer, and hands them on. */
export class ApiListener implements AsyncDisposable {
  readonly log: LoggedRequest[] = [];
  readonly faults = new Faults();
  readonly watches = new Set<WatchStream>();
  readonly activity = new Activity('API server double');
  /** What a SelfSubjectAccessReview says no to. */
  readonly denied: DeniedAccess[] = [];
  /** Versions of resource.k8s.io that are served now. */
  draVersions: readonly DraVersion[];
  /** What a kubelet does for it; without, pods have neither logs nor commands. */
  podStreams: PodStreams | undefined;
  readonly #store: ObjectStore;
  readonly #registry: Registry;
  readonly #token: string | undefined;
  readonly #server: Server;
  #closing: Promise<void> | undefined;

  constructor(store: ObjectStore, registry: Registry, versions: readonly DraVersion[], token: string | undefined) {
    this.#store = store;
    this.#registry = registry;
    this.draVersions = versions;
    this.#token = token;
    this.#server = createServer((message, response) => void this.#handle(message, response));
    this.#server.on('upgrade', (message, socket) => {
      const isAllowed = this.#isAllowed(message.headers.authorization);
      void serveExec(message, socket, isAllowed ? this.podStreams : undefined);
    });
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
    try {
      logged.body = await readBody(message);
      this.activity.wake();
      for (const fault of this.faults.take(logged)) await suffer(fault, message);
      if (!response.destroyed) await this.#answer(url, logged, response);
    } catch (error) {
      logged.status = sendError(response, error);
    }
  }

  async #answer(url: URL, logged: LoggedRequest, response: ServerResponse): Promise<void> {
    if (!this.#isAllowed(logged.authorization)) throw new ApiStatusError(401, 'Unauthorized');
    const send = (status: number, body: object) => {
      logged.status = status;
      sendJson(response, status, body);
    };
    if (/^\/(healthz|livez|readyz)$/.test(url.pathname)) return send(200, { status: 'ok' });
    const review = logged.method === 'POST' ? reviewAccess(url.pathname, logged.body, this.denied) : undefined;
    if (review !== undefined) return send(201, review);
    const discovery = serveDiscovery(url.pathname, (type, version) => this.#isServed(type, version));
    if (discovery !== undefined) return send(200, discovery);
    const log = readPodLog(url, this.podStreams);
    if (log !== undefined) {
      logged.status = 200;
      response.writeHead(200, { 'Content-Type': 'text/plain' }).end(log);
      return;
    }
    const request = this.#resolvePath(url, logged);
    if (request === undefined) {
      logged.status = 404;
      response.writeHead(404, { 'Content-Type': 'text/plain; charset=utf-8' }).end('404 page not found\n');
    } else if (logged.isWatch) {
      logged.status = 200;
      await this.#watch(request, response);
    } else {
      const answer = serveResource(this.#registry, this.#store, request);
      send(answer.status, answer.body);
    }
  }

  #isAllowed(authorization: string | undefined): boolean {
    return this.#token === undefined || authorization === `Bearer ${this.#token}`;
  }

  /** @returns `undefined` when the group or version is not served at all */
  #resolvePath(url: URL, logged: LoggedRequest): ResourceRequest | undefined {
    const path = parseResourcePath(url.pathname);
    if (path === undefined) return undefined;
    const types = resourceTypes.filter((type) => type.group === path.group && this.#isServed(type, path.version));
    if (types.length === 0) return undefined;
    const type = types.find((candidate) => candidate.plural === path.plural);
    if (type === undefined) throw unknownResource();
    return { type, version: path.version, path, query: url.searchParams, logged };
  }

  #isServed(type: ResourceType, version: string): boolean {
    if (type.group === 'resource.k8s.io') return this.draVersions.some((candidate) => candidate === version);
    return version === type.storageVersion;
  }

  async #watch(request: ResourceRequest, response: ServerResponse): Promise<void> {
    const { type, version, path, query } = request;
    const timeoutSeconds = query.get('timeoutSeconds');
    const watch = new WatchStream(
      this.#store,
      {
        type,
        version,
        ...(path.namespace === undefined ? {} : { namespace: path.namespace }),
        selector: selectorOf(request),
        resourceVersion: query.get('resourceVersion') ?? '',
        allowBookmarks: query.get('allowWatchBookmarks') === 'true',
        ...(timeoutSeconds === null ? {} : { timeoutSeconds: Number(timeoutSeconds) }),
      },
      response,
    );
    this.watches.add(watch);
    this.activity.wake();
    await watch.run().finally(() => this.watches.delete(watch));
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
    isWatch: message.method === 'GET' && /^(true|1)$/.test(url.searchParams.get('watch') ?? ''),
    startedMs: performance.now(),
    endedMs: undefined,
    status: undefined,
  };
}

async function suffer(fault: Fault, message: IncomingMessage): Promise<void> {
  if (fault.kind === 'delay') await sleep(fault.ms);
  else if (fault.kind === 'hang') await fault.released;
  else if (fault.kind === 'disconnect') message.socket.destroy();
  else throw fault.error;
}

/** @returns the HTTP status that was sent */
function sendError(response: ServerResponse, error: unknown): number {
  const known = error instanceof ApiStatusError ? error : new ApiStatusError(500, `Internal error occurred: ${error}`);
  const retryAfter = known.details?.retryAfterSeconds;
  sendJson(
    response,
    known.httpStatus,
    known.toStatus(),
    retryAfter === undefined ? {} : { 'Retry-After': String(retryAfter) },
  );
  return known.httpStatus;
}
