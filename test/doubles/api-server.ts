import { writeFile } from 'node:fs/promises';
import type { ResourceV1ResourceClaim } from '@kubernetes/client-node';
import { copyOf } from '../../src/lib/copy.ts';
import { ApiListener } from './api-server-http.ts';
import { type FailureOptions, type LoggedRequest, matchesRequest, type RequestMatch } from './api-server-log.ts';
import {
  ApiRequests,
  type DefinitionState,
  type DeniedAccess,
  type DraVersion,
  draVersions,
} from './api-server-requests.ts';
import {
  type KubeObject,
  type ObjectInput,
  ObjectStore,
  type Resource,
  resourceOf,
  wireCopy,
} from './api-server-store.ts';
import { deviceClassesOf } from './device-classes.ts';

export interface ApiServerOptions {
  /** Which versions of resource.k8s.io are served; requests for the others get 404. Default: all. */
  draVersions?: readonly DraVersion[];
  /** If given, requests without this bearer token get 401. The kubeconfig contains it in any case. */
  token?: string;
  /** Minor version of Kubernetes 1.x, default 36. */
  minorVersion?: number;
}

/**
 * A store with the HTTP interface of an API server, on a port of 127.0.0.1: objects with versions, conflicts and
 * watches, and faults where a test needs them. It accepts all writes: what the real server validates, converts,
 * defaults and permits is shown in e2e/cluster/api.
 *
 * The synchronous methods are direct actions of the test.
 */
export class ApiServer implements AsyncDisposable {
  readonly #store = new ObjectStore();
  readonly #requests = new ApiRequests(this.#store);
  readonly #listener: ApiListener;
  readonly #token: string | undefined;

  private constructor(options: ApiServerOptions) {
    this.#token = options.token;
    this.#listener = new ApiListener(this.#store, this.#requests, options.token);
    this.#requests.draVersions = options.draVersions ?? draVersions;
    if (options.minorVersion !== undefined) this.#requests.minorVersion = options.minorVersion;
  }

  static async start(options: ApiServerOptions = {}): Promise<ApiServer> {
    const server = new ApiServer(options);
    await server.#listener.listen();
    return server;
  }

  get url(): string {
    return this.#listener.url;
  }

  /** Every request, in the order of arrival. */
  get log(): readonly LoggedRequest[] {
    return this.#listener.log;
  }

  /** A kubeconfig as text, for `KubeConfig.loadFromString`. JSON is also valid YAML. */
  kubeconfig(): string {
    const name = 'double';
    return JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      // The client refuses plain HTTP unless TLS verification is off.
      clusters: [{ name, cluster: { server: this.url, 'insecure-skip-tls-verify': true } }],
      users: [{ name, user: { token: this.#token ?? 'any' } }],
      contexts: [{ name, context: { cluster: name, user: name, namespace: 'default' } }],
      'current-context': name,
    });
  }

  async writeKubeconfig(path: string): Promise<void> {
    await writeFile(path, this.kubeconfig(), { mode: 0o600 });
  }

  /** For an allocated claim, also creates its classes unless they exist. @throws ApiStatusError 409 */
  create<T extends ObjectInput>(object: T): T & KubeObject {
    const { resource, namespace } = locate(object.kind, object.metadata?.namespace);
    if (object.kind === 'ResourceClaim') this.#createClasses(object as unknown as ResourceV1ResourceClaim);
    return copyOf(this.#store.create(resource, namespace, wireCopy(object))) as T & KubeObject;
  }

  /** @returns a copy; `undefined` if it does not exist. Default namespace of namespaced kinds: `default`. */
  get<T = KubeObject>(kind: string, name: string, namespace?: string): T | undefined {
    const place = locate(kind, namespace);
    return copyOf(this.#store.find(place.resource, place.namespace, name)) as T | undefined;
  }

  /** Replaces the whole object. A `resourceVersion` other than the current one is a conflict; leave it out to force. */
  update<T extends ObjectInput>(object: T): T & KubeObject {
    const { resource, namespace } = locate(object.kind, object.metadata?.namespace);
    const name = object.metadata?.name ?? '';
    return copyOf(this.#store.replace(resource, namespace, name, wireCopy(object))) as T & KubeObject;
  }

  /** Changes the current object in place: `server.edit<V1Pod>('Pod', 'p', (pod) => { … })`. */
  edit<T = KubeObject>(kind: string, name: string, change: (object: T) => void, namespace?: string): T & KubeObject {
    const place = locate(kind, namespace);
    const object = copyOf(this.#store.get(place.resource, place.namespace, name));
    change(object as T);
    return this.update(object) as T & KubeObject;
  }

  /** @throws ApiStatusError 404 */
  delete(kind: string, name: string, namespace?: string): void {
    const place = locate(kind, namespace);
    this.#store.delete(place.resource, place.namespace, name);
  }

  /** Copies of all objects of a kind, sorted by namespace and name. */
  objects<T = KubeObject>(kind: string, namespace?: string): T[] {
    return copyOf(this.#store.list(locate(kind).resource, namespace)) as T[];
  }

  /** Matching requests so far. */
  requests(match: RequestMatch): LoggedRequest[] {
    return this.log.filter((request) => matchesRequest(match, request));
  }

  /** Waits until `condition` returns something other than `undefined` or `false`, and returns that. @throws Error */
  until<T>(condition: () => T | undefined | false, timeoutMs = 5000): Promise<T> {
    return this.#listener.activity.until(condition, timeoutMs);
  }

  delay(match: RequestMatch, ms: number): Disposable {
    return this.#listener.faults.delay(match, ms);
  }

  failNext(match: RequestMatch, status: number, options?: FailureOptions): Disposable {
    return this.#listener.faults.failNext(match, status, options);
  }

  hang(match: RequestMatch): Disposable {
    return this.#listener.faults.hang(match);
  }

  /**
   * From now on a SelfSubjectAccessReview denies this access to the client. Requests themselves are not refused:
   * `failNext` does that.
   */
  denyAccess(denied: DeniedAccess): void {
    this.#requests.denied.push(denied);
  }

  /** Deletes definitions, or begins to: the objects are left as they are. @param plurals such as `networkaddresses` */
  endDefinitions(state: DefinitionState, ...plurals: string[]): void {
    for (const plural of plurals) this.#requests.definitions.set(plural, state);
  }

  /** Creates definitions again, without their objects. */
  restoreDefinitions(...plurals: string[]): void {
    for (const plural of plurals) this.#requests.definitions.delete(plural);
  }

  /** Changes every object of the kind before it is stored, e.g. to drop a field of a disabled feature. */
  admit(kind: string, change: (object: KubeObject) => void): Disposable {
    const admit = (object: KubeObject) => {
      if (object.kind === kind) change(object);
    };
    this.#store.admit.add(admit);
    return { [Symbol.dispose]: () => void this.#store.admit.delete(admit) };
  }

  /** Switches the served versions of resource.k8s.io, as an upgrade of the cluster does. */
  serveDraVersions(versions: readonly DraVersion[]): void {
    this.#requests.draVersions = versions;
  }

  /** Forgets the history: watches from earlier versions get 410. */
  compact(): void {
    this.#store.compact();
  }

  /** Sends a bookmark on every watch. */
  sendBookmarks(): void {
    for (const watch of this.#listener.watches) watch.bookmark();
  }

  /** Ends all watches. */
  endWatches(): void {
    for (const watch of this.#listener.watches) watch.end();
  }

  /** Cuts all connections, including pending requests. */
  dropConnections(): void {
    this.#listener.dropConnections();
  }

  get watchCount(): number {
    return this.#listener.watches.size;
  }

  #createClasses(claim: ResourceV1ResourceClaim): void {
    for (const deviceClass of deviceClassesOf(claim)) {
      if (this.get('DeviceClass', deviceClass.metadata?.name ?? '') === undefined)
        this.create(deviceClass as ObjectInput);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#listener[Symbol.asyncDispose]();
  }
}

function locate(
  kind: string | undefined,
  namespace = 'default',
): { resource: Resource; namespace: string | undefined } {
  const resource = resourceOf(kind);
  return { resource, namespace: resource.namespaced ? namespace : undefined };
}
