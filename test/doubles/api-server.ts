import { writeFile } from 'node:fs/promises';
import type { DeniedAccess } from './api-server-access.ts';
import { ApiListener } from './api-server-listener.ts';
import { type FailureOptions, type LoggedRequest, matchesRequest, type RequestMatch } from './api-server-log.ts';
import type { PodStreams } from './api-server-pods.ts';
import { Registry, type RegistryPolicy } from './api-server-registry.ts';
import { apiVersionOf, type DraVersion, draVersions, type ResourceType, typeOfKind } from './api-server-resources.ts';
import { ObjectStore } from './api-server-store.ts';
import { type JsonObject, jsonCopy, type KubeObject, type ObjectInput } from './api-server-types.ts';

export interface ApiServerOptions {
  /** Which versions of resource.k8s.io are served; requests for the others get 404. Default: all. */
  draVersions?: DraVersion[];
  /** When given, requests without this bearer token get 401. It is in the kubeconfig in any case. */
  token?: string;
}

/**
 * A Kubernetes API server for the resources that netdra uses, on a port of 127.0.0.1. It keeps objects in memory and
 * behaves like the real one where a client can tell: versions and conflicts, watches, refusals.
 * It knows no users, admission or quotas, and checks of each object only what its validate files name.
 *
 * The synchronous methods are the test's own hand: they write spec and status at once.
 */
export class ApiServer implements AsyncDisposable {
  readonly #store = new ObjectStore();
  readonly #policy: RegistryPolicy = { admit: new Set() };
  readonly #registry = new Registry(this.#store, this.#policy);
  readonly #listener: ApiListener;
  readonly #token: string | undefined;

  private constructor(options: ApiServerOptions) {
    this.#token = options.token;
    this.#listener = new ApiListener(this.#store, this.#registry, options.draVersions ?? draVersions, options.token);
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

  /** From now on pods have logs, and commands run in their containers. */
  servePods(streams: PodStreams): void {
    this.#listener.podStreams = streams;
  }

  /** A kubeconfig as text, for `KubeConfig.loadFromString`. JSON is YAML too. */
  kubeconfig(): string {
    const name = 'double';
    return JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      // The client refuses plain HTTP unless it need not verify TLS either.
      clusters: [{ name, cluster: { server: this.url, 'insecure-skip-tls-verify': true } }],
      users: [{ name, user: { token: this.#token ?? 'any' } }],
      contexts: [{ name, context: { cluster: name, user: name, namespace: 'default' } }],
      'current-context': name,
    });
  }

  async writeKubeconfig(path: string): Promise<void> {
    await writeFile(path, this.kubeconfig(), { mode: 0o600 });
  }

  /** @throws ApiStatusError as the API would answer */
  create<T extends ObjectInput>(object: T): T & KubeObject {
    const { type, namespace, input } = this.#resolve(object);
    return this.#registry.create(type, namespace, input, { verb: 'create', endpoint: 'all' }) as T & KubeObject;
  }

  /** @returns a copy, `undefined` if there is none. Namespace of a namespaced kind: `default` unless given. */
  get<T = KubeObject>(kind: string, name: string, namespace?: string): T | undefined {
    const type = typeOfKind(kind);
    return this.#store.get(type, namespaceFor(type, namespace), name) as T | undefined;
  }

  /** Replaces spec and status. A `resourceVersion` that is not the current one is a conflict; leave it out to force. */
  update<T extends ObjectInput>(object: T): T & KubeObject {
    const { type, namespace, input } = this.#resolve(object);
    const name = object.metadata?.name ?? '';
    return this.#registry.update(type, namespace, name, input, { verb: 'update', endpoint: 'all' }) as T & KubeObject;
  }

  /** Changes the current object in place: `server.edit<V1Pod>('Pod', 'p', (pod) => { … })`. */
  edit<T = KubeObject>(kind: string, name: string, change: (object: T) => void, namespace?: string): T & KubeObject {
    const type = typeOfKind(kind);
    const object = this.#registry.get(type, namespaceFor(type, namespace), name);
    change(object as T);
    return this.update(object) as T & KubeObject;
  }

  /** Removes at once (a pod too), unless there are finalizers. @throws ApiStatusError 404 */
  delete(kind: string, name: string, namespace?: string): void {
    const type = typeOfKind(kind);
    this.#registry.delete(type, namespaceFor(type, namespace), name);
  }

  /** Copies of all objects of a kind, sorted by namespace and name. */
  objects<T = KubeObject>(kind: string, namespace?: string): T[] {
    return this.#store.list(typeOfKind(kind), namespace) as T[];
  }

  /** Removes what is owned only by objects that are gone, as the garbage collector would. @returns how many went */
  collectGarbage(): number {
    let count = 0;
    for (let more = true; more; ) {
      const uids = new Set(this.#store.all().map(({ object }) => object.metadata.uid));
      const orphans = this.#store.all().filter(({ object }) => {
        const owners = object.metadata.ownerReferences ?? [];
        const isHeld = object.metadata.deletionTimestamp !== undefined;
        return owners.length > 0 && !isHeld && owners.every(({ uid }) => !uids.has(uid));
      });
      for (const { type, object } of orphans)
        this.#registry.delete(type, object.metadata.namespace, object.metadata.name);
      count += orphans.length;
      more = orphans.length > 0;
    }
    return count;
  }

  /** Requests so far that match. */
  requests(match: RequestMatch): LoggedRequest[] {
    return this.log.filter((request) => matchesRequest(match, request));
  }

  /** Waits until `condition` gives something else than `undefined` or `false`, and returns that. @throws Error */
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

  disconnectNext(match: RequestMatch, times?: number): Disposable {
    return this.#listener.faults.disconnectNext(match, times);
  }

  /** From now on only these drivers may change `status.devices` of claims; `undefined` lifts it. */
  allowDeviceStatus(drivers: string[] | undefined): void {
    this.#policy.deviceStatusDrivers = drivers;
  }

  /**
   * From now on a SelfSubjectAccessReview says that the client may not do this. Requests themselves are not refused:
   * `failNext` does that.
   */
  denyAccess(denied: DeniedAccess): void {
    this.#listener.denied.push(denied);
  }

  /** Runs on every object of the kind before it is validated and stored, e.g. to drop a field of a disabled feature. */
  admit(kind: string, change: (object: KubeObject) => void): Disposable {
    const admit = (type: ResourceType, object: KubeObject) => {
      if (type.kind === kind) change(object);
    };
    this.#policy.admit.add(admit);
    return { [Symbol.dispose]: () => void this.#policy.admit.delete(admit) };
  }

  /** Switches the served versions of resource.k8s.io, as an upgrade of the cluster does. */
  serveDraVersions(versions: DraVersion[]): void {
    this.#listener.draVersions = versions;
  }

  /** Forgets the history: watches and continue tokens from before get 410. */
  compact(): void {
    this.#store.compact();
  }

  /** Sends a bookmark on every watch that wants them. */
  sendBookmarks(): void {
    for (const watch of this.#listener.watches) watch.bookmark();
  }

  /** Ends all watches. @returns how many there were */
  endWatches(): number {
    const count = this.#listener.watches.size;
    for (const watch of this.#listener.watches) watch.end();
    return count;
  }

  /** Cuts all connections, requests on the way included. */
  dropConnections(): void {
    this.#listener.dropConnections();
  }

  get watchCount(): number {
    return this.#listener.watches.size;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#listener[Symbol.asyncDispose]();
  }

  #resolve(object: ObjectInput): { type: ResourceType; namespace: string | undefined; input: JsonObject } {
    const type = typeOfKind(object.kind);
    const input = { ...(jsonCopy(object) as JsonObject), apiVersion: apiVersionOf(type, type.storageVersion) };
    return { type, namespace: namespaceFor(type, object.metadata?.namespace), input };
  }
}

function namespaceFor(type: ResourceType, namespace: string | undefined): string | undefined {
  return type.namespaced ? (namespace ?? 'default') : undefined;
}
