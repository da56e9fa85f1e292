import { channel } from 'node:diagnostics_channel';
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Cost of requests of one kind, on the wire: head and body, as the server saw them. */
export interface Cost {
  calls: number;
  receivedBytes: number;
  sentBytes: number;
}

/** One answered request. */
export interface Call extends Omit<Cost, 'calls'> {
  kind: string;
  /** The client's user agent. */
  agent: string;
  /** Time of arrival, in simulated time. */
  atMs: number;
}

interface ServerEvent {
  request: IncomingMessage;
  response: ServerResponse;
  socket: Socket;
}

/** Bytes transferred over a connection by the time its last request was answered. */
interface Mark {
  receivedBytes: number;
  sentBytes: number;
}

/**
 * Counts the traffic between all API clients and API servers of this process, from Node.js' own information about its
 * connections: neither side is changed for it.
 */
export class Traffic implements Disposable {
  readonly calls: Call[] = [];
  readonly #nowMs: () => number;
  readonly #arrivals = new Map<ServerResponse, number>();
  readonly #marks = new WeakMap<Socket, Mark>();
  readonly #underWay = new Set<ClientRequest>();
  /** Connections that watch, with the user agents of their clients. */
  readonly #watches = new Map<Socket, string>();
  /** Bytes sent on watches that have ended. */
  readonly #ended = new Map<string, number>();
  readonly #subscriptions: Disposable;
  #started = 0;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
    const stack = new DisposableStack();
    const subscribe = (name: string, listen: (event: never) => void) => {
      const listener = (event: unknown) => listen(event as never);
      channel(name).subscribe(listener);
      stack.defer(() => void channel(name).unsubscribe(listener));
    };
    subscribe('http.client.request.start', ({ request }: { request: ClientRequest }) => {
      this.#started++;
      if (/[?&]watch=/.test(request.path)) return;
      this.#underWay.add(request);
      request.once('close', () => this.#underWay.delete(request));
    });
    subscribe('http.server.request.start', (event: ServerEvent) => this.#arrive(event));
    subscribe('http.server.response.finish', (event: ServerEvent) => this.#finish(event));
    this.#subscriptions = stack;
  }

  /** Requests that are not answered yet, except watches. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /** Number of requests ever sent, including watches. */
  get started(): number {
    return this.#started;
  }

  /** Bytes sent by the server so far on all watches of clients with this user agent. */
  watchedBytes(agent: string): number {
    const open = [...this.#watches].filter(([, each]) => each === agent);
    const sent = open.reduce((sum, [socket]) => sum + this.#sinceMark(socket).sentBytes, 0);
    return sent + (this.#ended.get(agent) ?? 0);
  }

  [Symbol.dispose](): void {
    this.#subscriptions[Symbol.dispose]();
  }

  #arrive({ request, response, socket }: ServerEvent): void {
    const kind = kindOf(request);
    this.#arrivals.set(response, this.#nowMs());
    if (!kind.startsWith('watch ')) return;
    // Its sent bytes are counted later, while it lasts.
    this.calls.push({
      ...this.#describe(request, response),
      receivedBytes: this.#sinceMark(socket).receivedBytes,
      sentBytes: 0,
    });
    this.#watches.set(socket, agentOf(request));
    socket.once('close', () => this.#endWatch(socket));
  }

  #finish({ request, response, socket }: ServerEvent): void {
    if (this.#watches.has(socket)) this.#endWatch(socket);
    else this.calls.push({ ...this.#describe(request, response), ...this.#sinceMark(socket) });
    this.#arrivals.delete(response);
    this.#marks.set(socket, { receivedBytes: socket.bytesRead, sentBytes: socket.bytesWritten });
  }

  #endWatch(socket: Socket): void {
    const agent = this.#watches.get(socket);
    if (agent === undefined) return;
    this.#ended.set(agent, (this.#ended.get(agent) ?? 0) + this.#sinceMark(socket).sentBytes);
    this.#watches.delete(socket);
  }

  #describe(request: IncomingMessage, response: ServerResponse): Pick<Call, 'kind' | 'agent' | 'atMs'> {
    return { kind: kindOf(request), agent: agentOf(request), atMs: this.#arrivals.get(response) ?? 0 };
  }

  #sinceMark(socket: Socket): Mark {
    const { receivedBytes, sentBytes } = this.#marks.get(socket) ?? { receivedBytes: 0, sentBytes: 0 };
    return { receivedBytes: socket.bytesRead - receivedBytes, sentBytes: socket.bytesWritten - sentBytes };
  }
}

function agentOf(request: IncomingMessage): string {
  return request.headers['user-agent'] ?? '';
}

/** `list resourceslices`, `create resourceslices`, `patch resourceclaims/status`. */
function kindOf({ method = 'GET', url = '/' }: IncomingMessage): string {
  const { pathname, searchParams } = new URL(url, 'http://localhost');
  const [, rest = ''] = /^\/(?:api\/[^/]+|apis\/[^/]+\/[^/]+)\/(?:namespaces\/[^/]+\/(?=.))?(.*)$/.exec(pathname) ?? [];
  const [resource, name, subresource] = rest.split('/');
  const onOne = { GET: 'get', PUT: 'replace', PATCH: 'patch', DELETE: 'delete' }[method];
  const onAll = { GET: searchParams.has('watch') ? 'watch' : 'list', POST: 'create' }[method];
  const verb = (name === undefined ? onAll : onOne) ?? method;
  return `${verb} ${resource}${subresource === undefined ? '' : `/${subresource}`}`;
}

export function sumUp(costs: Omit<Cost, 'calls'>[]): Cost {
  return {
    calls: costs.length,
    receivedBytes: costs.reduce((sum, { receivedBytes }) => sum + receivedBytes, 0),
    sentBytes: costs.reduce((sum, { sentBytes }) => sum + sentBytes, 0),
  };
}

/** Costs by kind, in the order of the first call of each. */
export function byKind(calls: Call[]): Map<string, Cost> {
  return new Map([...Map.groupBy(calls, ({ kind }) => kind)].map(([kind, group]) => [kind, sumUp(group)]));
}

/** Maximum number of calls within one second. */
export function peakPerSecond(calls: Call[]): number {
  const perSecond = Map.groupBy(calls, ({ atMs }) => Math.floor(atMs / 1_000));
  return Math.max(0, ...[...perSecond.values()].map(({ length }) => length));
}
