import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { Activity } from './activity.ts';
import { type Fault, Faults, type LoggedRequest } from './api-server-log.ts';
import { applyPatch } from './api-server-patch.ts';
import { ApiStatusError } from './api-server-status.ts';
import { type KubeObject, type ObjectInput, type ObjectStore, type Resource, resources } from './api-server-store.ts';
import { type Selection, WatchStream } from './api-server-watch.ts';

/** Versions of resource.k8s.io that can be served, newest first. All have the same shape here. */
export const draVersions = ['v1', 'v1beta2', 'v1beta1'] as const;
export type DraVersion = (typeof draVersions)[number];

/** A verb on a resource; `resource` has the subresource after a slash: `resourceclaims/status`. */
export interface DeniedAccess {
  verb: string;
  resource: string;
  /** Default: all objects, as in a review without a name. */
  name?: string;
}

/** The target in the path of a request. */
interface Target {
  resource: Resource;
  namespace: string | undefined;
  /** `undefined`: the collection. */
  name: string | undefined;
}

const accessReviews = '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews';

/** The HTTP side of the API server double: logs requests, applies faults, and reads and writes the store. */
export class ApiListener implements AsyncDisposable {
  readonly log: LoggedRequest[] = [];
  readonly faults = new Faults();
  readonly watches = new Set<WatchStream>();
  readonly activity = new Activity('API server double');
  /** Access that a SelfSubjectAccessReview denies. */
  readonly denied: DeniedAccess[] = [];
  /** Minor version of Kubernetes 1.x. */
  minorVersion = 36;
  /** Versions of resource.k8s.io that are served now. */
  draVersions: readonly DraVersion[];
  readonly #store: ObjectStore;
  readonly #token: string | undefined;
  readonly #server: Server;
  #closing: Promise<void> | undefined;

  constructor(store: ObjectStore, versions: readonly DraVersion[], token: string | undefined) {
    this.#store = store;
    this.draVersions = versions;
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
      if (!logged.isWatch) return send(logged.method === 'POST' ? 201 : 200, this.#serve(logged));
      logged.status = 200;
      await this.#watch(this.#resolve(logged.path), logged, response);
    } catch (error) {
      const known = error instanceof ApiStatusError ? error : new ApiStatusError(500, String(error));
      const { retryAfterSeconds } = known.details;
      const headers = retryAfterSeconds === undefined ? {} : { 'Retry-After': String(retryAfterSeconds) };
      send(known.httpStatus, known.toStatus(), headers);
    }
  }

  /** @throws ApiStatusError */
  #serve({ method, path, query, contentType, body }: LoggedRequest): object {
    if (path === '/version')
      return { major: '1', minor: `${this.minorVersion}`, gitVersion: `v1.${this.minorVersion}.0-double` };
    if (path === accessReviews) return this.#reviewAccess(body as ReviewedAccess);
    const target = this.#resolve(path);
    const { resource, namespace, name } = target;
    const store = this.#store;
    if (name === undefined) {
      if (method === 'POST') return store.create(resource, namespace, body as ObjectInput);
      const all = store.list(resource, namespace).filter(selectionOf(target, query).selects);
      const from = Number(query.continue ?? 0);
      const to = from + Number(query.limit ?? all.length);
      const next = to < all.length ? { continue: String(to) } : {};
      const metadata = { resourceVersion: String(store.resourceVersion), ...next };
      return { kind: `${resource.kind}List`, metadata, items: all.slice(from, to) };
    }
    if (method === 'PUT') return store.replace(resource, namespace, name, body as ObjectInput);
    if (method === 'DELETE') {
      const { preconditions } = (body ?? {}) as { preconditions?: { uid?: string; resourceVersion?: string } };
      return store.delete(resource, namespace, name, preconditions);
    }
    // Of one manager, which applies whole fields.
    if (contentType === 'application/apply-patch+yaml') {
      const before = store.find(resource, namespace, name);
      if (path.endsWith('/status')) {
        const { status } = body as { status?: object };
        return store.replace(resource, namespace, name, {
          ...store.get(resource, namespace, name),
          status,
        } as ObjectInput);
      }
      if (before === undefined) return store.create(resource, namespace, body as ObjectInput);
      return store.replace(resource, namespace, name, { ...before, ...(body as ObjectInput) });
    }
    const current = store.get(resource, namespace, name);
    if (method === 'GET') return current;
    return store.replace(resource, namespace, name, applyPatch(current, contentType, body));
  }

  #reviewAccess(review: ReviewedAccess): object {
    const { verb, resource, subresource, name } = review.spec.resourceAttributes;
    const full = subresource === undefined ? resource : `${resource}/${subresource}`;
    const isDenied = this.denied.some((each) => each.verb === verb && each.resource === full && each.name === name);
    return { ...review, status: { allowed: !isDenied } };
  }

  /** @throws ApiStatusError 404 when the resource is not served */
  #resolve(path: string): Target {
    const [root, ...steps] = path
      .split('/')
      .filter((step) => step !== '')
      .map(decodeURIComponent);
    const group = root === 'api' ? '' : steps.shift();
    const version = steps.shift() as DraVersion;
    const namespace = steps[0] === 'namespaces' ? steps.splice(0, 2)[1] : undefined;
    const [plural, name] = steps;
    const resource = resources.find((each) => each.group === group && each.plural === plural);
    const { version: served = 'v1' } = resource ?? {};
    const isServed = group === 'resource.k8s.io' ? this.draVersions.includes(version) : version === served;
    if (resource === undefined || !isServed) throw new ApiStatusError(404, `nothing serves ${path}`);
    return { resource, namespace, name };
  }

  async #watch(target: Target, { query }: LoggedRequest, response: ServerResponse): Promise<void> {
    const watch = new WatchStream(this.#store, selectionOf(target, query), response);
    this.watches.add(watch);
    this.activity.wake();
    await watch.run(query.resourceVersion).finally(() => this.watches.delete(watch));
  }
}

interface ReviewedAccess {
  spec: { resourceAttributes: { verb: string; resource: string; subresource?: string; name?: string } };
}

/** Selectors are lists of `field=value` and `label=value` here. */
function selectionOf({ resource, namespace }: Target, query: LoggedRequest['query']): Selection {
  const { fieldSelector = '', labelSelector = '' } = query;
  const parse = (selector: string) =>
    selector.split(',').flatMap((term) => (term === '' ? [] : [term.split('=') as [string, string]]));
  const [terms, labels] = [parse(fieldSelector), parse(labelSelector)];
  return {
    resource,
    selects: (object) =>
      (namespace === undefined || object.metadata.namespace === namespace) &&
      terms.every(([field, value]) => valueAt(object, field) === value) &&
      labels.every(([label, value]) => (object.metadata.labels as Record<string, string>)?.[label] === value),
  };
}

function valueAt(object: KubeObject, field: string): unknown {
  return field
    .split('.')
    .reduce<unknown>((value, step) => (value as Record<string, unknown> | undefined)?.[step], object);
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
