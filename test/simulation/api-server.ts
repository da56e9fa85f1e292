import type { KubeEvent } from '../../src/driver/events/index.ts';
import type { StoredView } from '../../src/driver/nodeview/index.ts';
import {
  type AllocatedDeviceStatus,
  type JsonPatchOperation,
  type KubeApi,
  KubeError,
  type KubeRequest,
  type WatchEvent,
} from '../../src/framework/kube/index.ts';
import type { Device, ResourceSlice } from '../../src/framework/resourceslice/index.ts';
import { copyOf } from '../../src/lib/copy.ts';
import { deepFreeze } from '../../src/lib/freeze.ts';
import type { ClaimPlan } from './plan.ts';
import type { Process, Simulator } from './simulator.ts';

export const driverName = 'sriov.netdra.dev';
export const nodeName = 'node-1';

/** A claim as allocated by the scheduler. */
export interface SimClaim {
  uid: string;
  name: string;
  /** Its allocated VFs, one for each request; with `adminAccess` it only observes them. None: not allocated. */
  devices: { request: string; device: string; adminAccess: boolean }[];
  plan: ClaimPlan;
  /** UIDs of pods. */
  reservedFor: string[];
  isTemplate: boolean;
  /** `status.devices`, for devices that are allocated. */
  status: AllocatedDeviceStatus[];
}

export const namespace = 'default';

interface Change {
  version: number;
  path: string;
  type: 'ADDED' | 'MODIFIED' | 'DELETED';
  object: { metadata: { resourceVersion: string } };
}

interface Watcher {
  path: string;
  process: Process;
  push: (change: Change) => void;
  end: (error?: Error) => void;
}

const versions = '/apis/resource.k8s.io/v1/';
const claimPath = /^namespaces\/[^/]+\/resourceclaims\/([^/]+)(\/status)?$/;

/** The API server of the cluster: claims, pods, classes, slices, events and what nodes show. */
export class ApiServer {
  readonly claims = new Map<string, SimClaim>();
  /** By name. */
  readonly slices = new Map<string, ResourceSlice>();
  readonly events = new Map<string, object>();
  /** NodeNetworkDevices, by name. */
  readonly views = new Map<string, { metadata: object; status: StoredView }>();
  /** A new event. */
  onEvent: (event: KubeEvent, process: Process) => void = () => undefined;
  readonly #simulator: Simulator;
  readonly #watchers = new Set<Watcher>();
  readonly #changes: Change[] = [];
  /** By claim UID: the last version and its content. */
  readonly #versions = new Map<string, { version: number; text: string }>();
  #version = 1;
  /** Called before a slice is replaced. */
  onSlice: (before: ResourceSlice, after: ResourceSlice) => void = () => undefined;
  /** Existing pods. */
  pods: readonly { uid: string; isDeleted: boolean }[] = [];
  /** It does not answer before this time. */
  downUntilMs = 0;
  /** Share of requests that fail: one half is refused, and of the other half only the answer is lost. */
  errorRate = 0;

  constructor(simulator: Simulator) {
    this.#simulator = simulator;
  }

  /** The devices that the scheduler sees: those of complete pools. */
  offered(): Device[] {
    const slices = [...this.slices.values()];
    const newest = Math.max(0, ...slices.map(({ spec }) => spec.pool.generation));
    const current = slices.filter(({ spec }) => spec.pool.generation === newest);
    const isComplete = current.every(({ spec }) => spec.pool.resourceSliceCount === current.length);
    return isComplete ? current.flatMap(({ spec }) => spec.devices ?? []) : [];
  }

  /**
   * What is left of the counters that devices share.
   * @param taken names of devices that claims have
   */
  countersLeft(taken: ReadonlySet<string>): Counters {
    const sets = [...this.slices.values()].flatMap(({ spec }) => spec.sharedCounters ?? []);
    const left = new Counters(new Map(sets.flatMap(({ name, counters }) => valuesOf(name, counters))));
    for (const device of this.offered()) if (taken.has(device.name)) left.take(device);
    return left;
  }

  /** For a process. */
  client(process: Process): KubeApi {
    return {
      request: async <T>(request: KubeRequest) => (await this.#request(process, request)) as T,
      watch: <T>(request: Pick<KubeRequest, 'path' | 'query' | 'signal'>) =>
        this.#watch(process, request) as AsyncGenerator<WatchEvent<T>, void, void>,
    };
  }

  /** It does not answer for some time, and all watches end. */
  goDown(forMs: number): void {
    this.downUntilMs = this.#simulator.nowMs + forMs;
    for (const { end } of [...this.#watchers]) end(unreachable());
  }

  async #request(process: Process, { method, path, body, signal }: KubeRequest): Promise<unknown> {
    const what = `${method} ${path}`;
    await this.#reach(process, signal);
    const isFailing = this.#simulator.tape.chance(this.errorRate, 'api');
    process.point(what);
    if (isFailing && this.#simulator.tape.chance(0.5, 'api')) throw unreachable();
    // Names of events end in random digits.
    if (method !== 'GET') this.#simulator.trace(process.name, `${method} ${path.replace(/\.[0-9a-f]{16}$/, '')}`);
    // A copy, as on the wire. Its readers share it.
    const answer = this.#answer(process, method, path, deepFreeze(copyOf(body)));
    if (method !== 'GET') process.point(`answer to ${what}`);
    if (isFailing) throw unreachable();
    return answer;
  }

  async #reach(process: Process, signal: AbortSignal | undefined): Promise<void> {
    const { tape, nowMs } = this.#simulator;
    const delayMs = Math.max(tape.delay(3, 3_000), this.downUntilMs - nowMs);
    await process.clock.sleep(delayMs, signal);
  }

  #answer(process: Process, method: KubeRequest['method'], path: string, body: object | undefined): object {
    if (path.startsWith(versions)) return this.#resource(method, path.slice(versions.length), body);
    const [, kind = '', name = ''] = /\/(pods|nodes|namespaces)\/([^/]+)$/.exec(path) ?? [];
    if (method === 'GET' && kind === 'nodes') return { metadata: { name, uid: `uid-${name}` } };
    if (method === 'GET' && kind === 'pods') {
      const pod = this.pods.find(({ uid }) => uid === name);
      if (pod === undefined) throw notFound(name);
      return { metadata: { uid: pod.uid, ...(pod.isDeleted ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}) } };
    }
    if (path.startsWith('/apis/netdra.dev/v1alpha1/nodenetworkdevices/')) return this.#view(method, path, body);
    if (path.startsWith('/apis/events.k8s.io/v1/')) return this.#event(process, method, path, body);
    throw new Error(`the simulated API server does not know ${method} ${path}`);
  }

  #resource(method: KubeRequest['method'], path: string, body: object | undefined): object {
    const [, claimName, status] = claimPath.exec(path) ?? [];
    if (claimName !== undefined) {
      const claim = this.claims.get(claimName);
      if (claim === undefined) throw notFound(claimName);
      if (status !== undefined) this.#patch(claim, body as JsonPatchOperation[]);
      return this.#objectOf(claim);
    }
    const [kind, name] = path.split('/');
    const items = kind === 'deviceclasses' ? this.#classes() : this.slices;
    if (method === 'GET' && name === undefined) {
      return { metadata: { resourceVersion: `${this.#version}` }, items: [...items.values()] };
    }
    if (method === 'GET') return items.get(name ?? '') ?? fail(notFound(name ?? ''));
    return this.#writeSlice(method, name, body as ResourceSlice);
  }

  #classes(): Map<string, object> {
    return new Map([...this.claims.values()].map((claim) => [classOf(claim), toClass(claim)]));
  }

  /** The scheduler or a controller has created a claim: its class exists, too. */
  add(claim: SimClaim): void {
    if (this.claims.has(claim.name)) return;
    this.claims.set(claim.name, claim);
    this.#changed('deviceclasses', 'ADDED', toClass(claim));
  }

  #writeSlice(method: KubeRequest['method'], name: string | undefined, slice: ResourceSlice): object {
    const known = this.slices.get(name ?? slice.metadata.name);
    if (method === 'POST' && known !== undefined) throw conflict('AlreadyExists');
    if (method !== 'POST' && known === undefined) throw notFound(name ?? '');
    if (method === 'DELETE') {
      const { preconditions } = slice as unknown as { preconditions: { uid?: string; resourceVersion?: string } };
      if (preconditions.resourceVersion !== known?.metadata.resourceVersion) throw conflict('Conflict');
      this.slices.delete(name ?? '');
      this.#changed('resourceslices', 'DELETED', { ...known, metadata: { ...known?.metadata } });
      return {};
    }
    if (method === 'PUT' && slice.metadata.resourceVersion !== known?.metadata.resourceVersion) {
      throw conflict('Conflict');
    }
    const uid = known?.metadata.uid ?? `uid-slice-${this.#version}`;
    const stored = { ...slice, metadata: { ...slice.metadata, uid } };
    if (known !== undefined) this.onSlice(known, stored);
    this.slices.set(slice.metadata.name, stored);
    this.#changed('resourceslices', method === 'POST' ? 'ADDED' : 'MODIFIED', stored);
    return stored;
  }

  #event(process: Process, method: KubeRequest['method'], path: string, body: object | undefined): object {
    const name =
      method === 'POST' ? (body as { metadata: { name: string } }).metadata.name : (path.split('/').at(-1) ?? '');
    const known = this.events.get(name);
    if (method === 'POST' && known !== undefined) throw conflict('AlreadyExists');
    if (method !== 'POST' && known === undefined) throw notFound(name);
    this.events.set(name, { ...known, ...body });
    if (method === 'POST') this.onEvent(body as KubeEvent, process);
    return {};
  }

  /** Server-side apply of all fields. */
  #view(method: KubeRequest['method'], path: string, body: object | undefined): object {
    const name = path.split('/').at(-1) ?? '';
    if (method === 'PATCH') this.views.set(name, body as { metadata: object; status: StoredView });
    return this.views.get(name) ?? fail(notFound(name));
  }

  /** Applies a JSON patch to `status.devices`. */
  #patch(claim: SimClaim, operations: readonly JsonPatchOperation[]): void {
    const devices = copyOf(claim.status);
    for (const operation of operations) {
      if (operation.path === '/metadata/resourceVersion') {
        if (operation.op !== 'remove' && operation.value !== this.#versionOf(claim)) throw conflict('Conflict');
        continue;
      }
      const [, at] = /^\/status\/devices(?:\/(\d+|-))?$/.exec(operation.path) ?? fail(invalid(operation.path));
      const isThere = at === undefined || at === '-' || Number(at) < devices.length;
      if (!isThere || (at === '-' && devices.length === 0)) throw invalid(operation.path);
      if (operation.op === 'remove') devices.splice(Number(at), 1);
      else if (at === undefined) devices.splice(0, devices.length, ...(operation.value as AllocatedDeviceStatus[]));
      else if (at === '-') devices.push(operation.value as AllocatedDeviceStatus);
      else devices[Number(at)] = operation.value as AllocatedDeviceStatus;
    }
    const strangers = devices.filter((entry) => !isAllocated(claim, entry));
    if (strangers.length > 0) throw invalid(`${strangers[0]?.device} is not allocated`);
    claim.status = devices;
  }

  /** Claims are changed in many places, so their version is found by comparison. */
  #versionOf(claim: SimClaim): string {
    // Entries of devices that are not allocated any more are dropped.
    claim.status = claim.status.filter((entry) => isAllocated(claim, entry));
    const { devices, reservedFor, status } = claim;
    const text = JSON.stringify([devices, reservedFor, status]);
    const known = this.#versions.get(claim.uid);
    if (known?.text === text) return `${known.version}`;
    this.#versions.set(claim.uid, { version: ++this.#version, text });
    return `${this.#version}`;
  }

  #objectOf(claim: SimClaim): object {
    const { metadata, status, ...rest } = toObject(claim);
    const resourceVersion = this.#versionOf(claim);
    const { status: devices } = claim;
    return {
      ...rest,
      metadata: { ...metadata, resourceVersion },
      status: { ...status, ...(devices.length === 0 ? {} : { devices }) },
    };
  }

  #changed(path: string, type: Change['type'], object: { metadata: object }): void {
    const version = ++this.#version;
    Object.assign(object.metadata, { resourceVersion: `${version}` });
    const change = { version, path, type, object: object as Change['object'] };
    this.#changes.push(change);
    for (const watcher of this.#watchers) if (watcher.path === path) watcher.push(change);
  }

  async *#watch(process: Process, { path, query, signal }: Pick<KubeRequest, 'path' | 'query' | 'signal'>) {
    await this.#reach(process, signal);
    process.point(`WATCH ${path}`);
    if (this.#simulator.tape.chance(this.errorRate, 'api')) throw unreachable();
    const from = Number(query?.resourceVersion ?? 0);
    const kind = path.slice(versions.length);
    const queue = this.#changes.filter((change) => change.path === kind && change.version > from);
    let wake = Promise.withResolvers<void>();
    const watcher: Watcher = {
      path: kind,
      process,
      push: (change) => {
        this.#simulator.schedule(this.#simulator.tape.delay(1, 100), process, `event of ${kind}`, () => {
          queue.push(change);
          wake.resolve();
        });
      },
      end: (error) => {
        this.#watchers.delete(watcher);
        if (error === undefined) wake.resolve();
        else wake.reject(error);
      },
    };
    const onAbort = () => watcher.end(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#watchers.add(watcher);
    process.onEnd(() => this.#watchers.delete(watcher));
    for (;;) {
      for (let change = queue.shift(); change !== undefined; change = queue.shift()) {
        yield { type: change.type, object: change.object };
      }
      await wake.promise;
      wake = Promise.withResolvers();
    }
  }
}

/** Counters of ports, as the scheduler keeps them (KEP-4815). */
export class Counters {
  readonly #left: Map<string, number>;

  constructor(left: Map<string, number>) {
    this.#left = left;
  }

  /** Takes what a device consumes. @returns whether there was enough */
  take({ consumesCounters = [] }: Pick<Device, 'consumesCounters'>): boolean {
    const needed = consumesCounters.flatMap(({ counterSet, counters }) => valuesOf(counterSet, counters));
    for (const [key, value] of needed) this.#left.set(key, (this.#left.get(key) ?? 0) - value);
    return needed.every(([key]) => (this.#left.get(key) ?? 0) >= 0);
  }
}

/** The driver writes quantities as `4000M`. */
function valuesOf(set: string, counters: Record<string, { value: string }>): [string, number][] {
  return Object.entries(counters).map(([name, { value }]) => [`${set} ${name}`, Number(value.replace(/M$/, ''))]);
}

function isAllocated({ devices }: SimClaim, { driver, device }: AllocatedDeviceStatus): boolean {
  return driver !== driverName || devices.some((each) => each.device === device);
}

function classOf({ name }: SimClaim): string {
  return `class-of-${name}`;
}

function configOf({ plan: { config } }: SimClaim) {
  const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...config };
  return { opaque: { driver: driverName, parameters } };
}

function toClass(claim: SimClaim) {
  return { metadata: { name: classOf(claim) }, spec: { config: [configOf(claim)] } };
}

function toObject(claim: SimClaim) {
  const { uid, name, devices, reservedFor, isTemplate } = claim;
  const requests = [...new Set(devices.map(({ request }) => request))];
  return {
    metadata: {
      name,
      namespace,
      uid,
      ...(isTemplate ? { annotations: { 'resource.kubernetes.io/pod-claim-name': 'net' } } : {}),
    },
    spec: {
      devices: {
        requests: requests.map((request) => ({ name: request, exactly: { deviceClassName: classOf(claim) } })),
      },
    },
    status: {
      ...(devices.length === 0 ? {} : { allocation: allocationOf(claim) }),
      reservedFor: reservedFor.map((pod) => ({ resource: 'pods', name: pod, uid: pod })),
    },
  };
}

function allocationOf(claim: SimClaim) {
  return {
    devices: {
      results: claim.devices.map(({ request, device, adminAccess }) => ({
        driver: driverName,
        pool: nodeName,
        request,
        device,
        ...(adminAccess ? { adminAccess } : {}),
      })),
      config: [{ source: 'FromClass', ...configOf(claim) }],
    },
  };
}

function fail(error: Error): never {
  throw error;
}

function unreachable(): KubeError {
  return new KubeError('api-unreachable', 'the API server is away', { retriable: true });
}

function notFound(name: string): KubeError {
  return new KubeError('api-not-found', `${name} not found`, { httpStatus: 404 });
}

function conflict(reason: string): KubeError {
  return new KubeError('api-conflict', reason, { httpStatus: 409, reason, retriable: true });
}

function invalid(what: string): KubeError {
  return new KubeError('api-invalid', `${what} is not valid`, { httpStatus: 422 });
}
