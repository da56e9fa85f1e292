import type { KubeEvent } from '../../src/driver/events/index.ts';
import type { StoredView } from '../../src/driver/nodeview/index.ts';
import { toKubeError } from '../../src/framework/kube/errors.ts';
import {
  type AllocatedDeviceStatus,
  type KubeApi,
  KubeError,
  type KubeQuery,
  type KubeRequest,
  type ResourceClaim,
  type WatchEvent,
} from '../../src/framework/kube/index.ts';
import type { Device, ResourceSlice } from '../../src/framework/resourceslice/index.ts';
import { ApiRequests, type ApiWatchEvent, watchEventOf } from '../doubles/api-server-requests.ts';
import { ApiStatusError } from '../doubles/api-server-status.ts';
import { type ObjectInput, ObjectStore, resourceOf, type StoreChange, wireCopy } from '../doubles/api-server-store.ts';
import { PastStore } from './past-store.ts';
import type { ClaimPlan } from './plan.ts';
import { hasPool, Pools, poolName } from './pools.ts';
import { epochMs, type Process, type Simulator } from './simulator.ts';

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
}

export const namespace = 'default';

interface Watcher {
  end: (error?: Error) => void;
}

/**
 * Whether a request reads the slices of other drivers. It takes no simulated time, and no process is killed at it: it changes
 * nothing, and schedules have no other driver.
 */
function isOfOthers({ query }: KubeQuery): boolean {
  return query?.fieldSelector?.includes('!=') ?? false;
}

/** The oldest state that a read shows whose server is behind. */
const mostBehindMs = 4_000;
/** How long a watch that skips states holds them back. */
const skipMs = 5_000;

const claims = resourceOf('ResourceClaim');
const classes = resourceOf('DeviceClass');
const slices = resourceOf('ResourceSlice');
const events = resourceOf('Event');
const views = resourceOf('NodeNetworkDevices');
const pods = resourceOf('Pod');
const nodes = resourceOf('Node');

/**
 * The API server of the cluster as its clients in the simulation reach it: the store and the rules of the double, behind
 * delays and faults instead of HTTP. Scheduler and controllers change claims and pods directly.
 */
export class ApiServer {
  readonly claims = new Map<string, SimClaim>();
  /** A new event. */
  onEvent: (event: KubeEvent, process: Process) => void = () => undefined;
  /** A slice is replaced. */
  onSlice: (before: ResourceSlice, after: ResourceSlice) => void = () => undefined;
  /** Existing pods. */
  pods: readonly { uid: string; isDeleted: boolean }[] = [];
  /** It does not answer before this time. */
  downUntilMs = 0;
  /** Share of requests that fail: one half is refused, and of the other half only the answer is lost. */
  errorRate = 0;
  /** Whether half of all reads are answered by a server whose cache is behind. */
  isBehind = false;
  /** Whether watches show several changes of an object as one, and end without those that came meanwhile. */
  skipsStates = false;
  readonly pools: Pools;
  readonly #simulator: Simulator;
  readonly #store: ObjectStore;
  readonly #requests: ApiRequests;
  readonly #watchers = new Set<Watcher>();
  readonly #changes: (StoreChange & { atMs: number })[] = [];
  #uidCount = 0;

  constructor(simulator: Simulator) {
    this.#simulator = simulator;
    const now = () => new Date(epochMs + simulator.nowMs);
    this.#store = new ObjectStore({ newUid: () => `uid-${++this.#uidCount}`, now });
    this.#requests = new ApiRequests(this.#store);
    this.pools = new Pools(this.#store, ({ name, uid }) => {
      const claim = this.claims.get(name);
      return claim?.uid === uid && claim.reservedFor.length > 0;
    });
    this.#store.onChange((change) => this.#changes.push({ ...change, atMs: simulator.nowMs }));
    this.#store.create(nodes, undefined, { metadata: { name: nodeName, uid: `uid-${nodeName}` } });
    this.#store.onChange(({ resource, before, after }) => {
      if (resource !== slices || before === undefined || after === undefined) return;
      this.onSlice(before as unknown as ResourceSlice, after as unknown as ResourceSlice);
    });
  }

  get slices(): ResourceSlice[] {
    return this.#store.list(slices) as unknown as ResourceSlice[];
  }

  /** What the node shows. */
  get view(): StoredView | undefined {
    return this.#store.find(views, undefined, nodeName)?.status as StoredView | undefined;
  }

  /** `status.devices` of a claim. */
  statusOf({ name }: SimClaim): readonly AllocatedDeviceStatus[] {
    this.#storeClaim(name);
    const { status } = this.#store.get(claims, namespace, name) as unknown as ResourceClaim;
    return status?.devices ?? [];
  }

  /** The devices that the scheduler sees: those of complete pools. */
  offered(): Device[] {
    const all = this.slices;
    const newest = Math.max(0, ...all.map(({ spec }) => spec.pool.generation));
    const current = all.filter(({ spec }) => spec.pool.generation === newest);
    const isComplete = current.every(({ spec }) => spec.pool.resourceSliceCount === current.length);
    return isComplete ? current.flatMap(({ spec }) => spec.devices ?? []) : [];
  }

  /**
   * What is left of the counters that devices share.
   * @param taken names of devices that claims have
   */
  countersLeft(taken: ReadonlySet<string>): Counters {
    const sets = this.slices.flatMap(({ spec }) => spec.sharedCounters ?? []);
    const left = new Counters(new Map(sets.flatMap(({ name, counters }) => valuesOf(name, counters))));
    for (const device of this.offered()) if (taken.has(device.name)) left.take(device);
    return left;
  }

  /** For a process. */
  client(process: Process): KubeApi {
    return {
      request: async <T>(request: KubeRequest) => (await this.#request(process, request)) as T,
      watch: <T>(request: KubeQuery) => this.#watch(process, request) as AsyncGenerator<WatchEvent<T>, void, void>,
    };
  }

  /** It does not answer for some time, and all watches end. */
  goDown(forMs: number): void {
    this.downUntilMs = this.#simulator.nowMs + forMs;
    for (const { end } of [...this.#watchers]) end(unreachable());
  }

  /** The scheduler or a controller has created a claim: its class exists, too. */
  add(claim: SimClaim): void {
    if (this.claims.has(claim.name)) return;
    this.claims.set(claim.name, claim);
    if (hasPool(claim.plan)) this.pools.create();
    const deviceClass = toClass(claim);
    const { name } = deviceClass.metadata;
    if (this.#store.find(classes, undefined, name) === undefined) this.#store.create(classes, undefined, deviceClass);
    else this.#store.replace(classes, undefined, name, deviceClass);
  }

  /** Claims and pods have changed: reads of the past know when. */
  changed(): void {
    for (const name of this.claims.keys()) this.#storeClaim(name);
    for (const { uid } of this.pods) this.#storePod(uid);
  }

  async #request(process: Process, request: KubeRequest): Promise<unknown> {
    const { method, path, body } = request;
    const what = `${method} ${path}`;
    const fault = isOfOthers(request) ? 'others' : 'api';
    await this.#reach(process, request);
    const isFailing = this.#simulator.tape.chance(this.errorRate, fault);
    if (!isOfOthers(request)) process.point(what);
    if (isFailing && this.#simulator.tape.chance(0.5, fault)) throw unreachable();
    // Names of events end in random digits.
    if (method !== 'GET') this.#simulator.trace(process.name, `${method} ${path.replace(/\.[0-9a-f]{16}$/, '')}`);
    const answer = this.#answer({ ...request, ...(body === undefined ? {} : { body: wireCopy(body) }) });
    if (method === 'POST' && path.endsWith(`/${events.plural}`)) this.onEvent(body as KubeEvent, process);
    if (method !== 'GET') process.point(`answer to ${what}`);
    if (isFailing) throw unreachable();
    return answer;
  }

  async #reach(process: Process, request: KubeQuery): Promise<void> {
    const { tape, nowMs } = this.#simulator;
    const delayMs = Math.max(isOfOthers(request) ? 0 : tape.delay(3, 3_000), this.downUntilMs - nowMs);
    if (delayMs > 0 || !isOfOthers(request)) await process.clock.sleep(delayMs, request.signal);
  }

  #answer(request: KubeRequest): object {
    const { method, path } = request;
    const [, kind, name = ''] = /\/(pods|resourceclaims)\/([^/]+)(?:\/status)?$/.exec(path) ?? [];
    if (kind === claims.plural) this.#storeClaim(name);
    if (kind === pods.plural) this.#storePod(name);
    return this.#refusing(`${method} ${path}`, () => {
      const past = method === 'GET' ? this.#past() : undefined;
      return past?.answer(request) ?? this.#requests.answer(request);
    });
  }

  /** What was stored some time ago; absent: the current read shows what is stored now. */
  #past(): { answer: (request: KubeRequest) => object | undefined } | undefined {
    const { tape, nowMs } = this.#simulator;
    if (!this.isBehind || !tape.chance(0.5, 'stale')) return undefined;
    const atMs = nowMs - mostBehindMs * tape.fraction('stale');
    const end = this.#changes.findLastIndex((change) => change.atMs <= atMs);
    const requests = new ApiRequests(new PastStore(this.#changes.slice(0, end + 1)));
    const answer = (request: KubeRequest) => {
      try {
        return requests.answer(request);
      } catch (error) {
        // An object that exists is not missing: for a pod that is gone the driver does nothing more.
        if (error instanceof ApiStatusError) return undefined;
        throw error;
      }
    };
    return { answer };
  }

  /** The port's errors are those that the client makes of the server's answers. */
  #refusing<T>(subject: string, work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (!(error instanceof ApiStatusError)) throw error;
      throw toKubeError(subject, error.httpStatus, JSON.stringify(error.toStatus()));
    }
  }

  /** What scheduler and controllers have made of a claim meanwhile. */
  #storeClaim(name: string): void {
    const claim = this.claims.get(name);
    const stored = this.#store.find(claims, namespace, name);
    if (stored !== undefined && stored.metadata.uid !== claim?.uid) this.#store.delete(claims, namespace, name);
    if (claim === undefined) return;
    const object = toObject(claim);
    if (stored?.metadata.uid !== claim.uid) this.#store.create(claims, namespace, object);
    else this.#store.replace(claims, namespace, name, withStatusOf(stored as unknown as ResourceClaim, object));
  }

  #storePod(uid: string): void {
    const pod = this.pods.find((each) => each.uid === uid);
    const stored = this.#store.find(pods, namespace, uid);
    if (pod === undefined) {
      if (stored !== undefined) this.#store.delete(pods, namespace, uid);
      return;
    }
    const deletion = pod.isDeleted ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {};
    const object = { metadata: { name: uid, uid, ...deletion } };
    if (stored === undefined) this.#store.create(pods, namespace, object);
    else this.#store.replace(pods, namespace, uid, object);
  }

  async *#watch(process: Process, request: KubeQuery) {
    const { path, query, signal } = request;
    await this.#reach(process, request);
    if (!isOfOthers(request)) process.point(`WATCH ${path}`);
    const fault = isOfOthers(request) ? 'others' : 'api';
    if (this.#simulator.tape.chance(this.errorRate, fault)) throw unreachable();
    const selection = this.#requests.selection(request);
    const from = Number(query?.resourceVersion ?? 0);
    const missed = this.#refusing(`WATCH ${path}`, () => this.#store.changesAfter(from));
    const queue = missed.flatMap((change) => watchEventOf(selection, change) ?? []);
    let wake = Promise.withResolvers<void>();
    const end = (error?: Error) => {
      stop();
      if (error === undefined) wake.resolve();
      else wake.reject(error);
    };
    const watcher: Watcher = { end };
    const { plural } = selection.resource;
    const { tape } = this.#simulator;
    const show = (event: ApiWatchEvent) => {
      queue.push(event);
      wake.resolve();
    };
    const held = new Map<string, ApiWatchEvent>();
    const hold = (event: ApiWatchEvent) => {
      const key = `${event.object.metadata.namespace}/${event.object.metadata.name}`;
      const before = held.get(key);
      held.set(key, before?.type === 'ADDED' && event.type === 'MODIFIED' ? { ...event, type: 'ADDED' } : event);
      if (before !== undefined) return;
      this.#simulator.schedule(skipMs * tape.fraction('skip'), process, `states of ${plural}`, () => {
        const last = held.get(key);
        held.delete(key);
        if (tape.chance(0.2, 'skip')) return end(expired());
        if (last !== undefined) show(last);
      });
    };
    const listening = this.#store.onChange((change) => {
      const event = watchEventOf(selection, change);
      if (event === undefined) return;
      if (this.skipsStates) hold(event);
      else this.#simulator.schedule(tape.delay(1, 100), process, `event of ${plural}`, () => show(event));
    });
    const stop = () => {
      listening[Symbol.dispose]();
      this.#watchers.delete(watcher);
    };
    const onAbort = () => end(signal?.reason);
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#watchers.add(watcher);
    process.onEnd(stop);
    for (;;) {
      for (let event = queue.shift(); event !== undefined; event = queue.shift()) yield event;
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

function classOf({ name }: SimClaim): string {
  return `class-of-${name}`;
}

function configOf({ name: key, plan }: SimClaim) {
  const pool = hasPool(plan) ? { addressPool: { name: poolName, key } } : {};
  const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...plan.config, ...pool };
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

/** What drivers have reported stays. */
function withStatusOf({ status: { devices } = {} }: ResourceClaim, object: ReturnType<typeof toObject>): ObjectInput {
  return { ...object, status: { ...object.status, ...(devices === undefined ? {} : { devices }) } } as ObjectInput;
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

/** As the real client reports that the server has forgotten the changes since a version. */
function expired(): KubeError {
  return new KubeError('api-expired', 'the watch has ended: its version is too old', { retriable: true });
}

function unreachable(): KubeError {
  return new KubeError('api-unreachable', 'the API server is away', { retriable: true });
}
