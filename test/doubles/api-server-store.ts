import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { ResourceClaim } from '../../src/framework/kube/index.ts';
import { copyOf } from '../../src/lib/copy.ts';
import { deepFreeze } from '../../src/lib/freeze.ts';
import { ApiStatusError } from './api-server-status.ts';

/** A stored object. `spec`, `status` and its other fields are plain JSON. */
export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace?: string;
    uid: string;
    /** Decimal; grows with every change of anything in the server. */
    resourceVersion: string;
    [field: string]: unknown;
  };
  [field: string]: unknown;
}

/** Input of a write: the server fills in the rest of the metadata. */
export interface ObjectInput {
  apiVersion?: string;
  kind?: string;
  metadata?: { name?: string; namespace?: string; uid?: string; resourceVersion?: string };
}

/** A kind of objects in the double. */
export interface Resource {
  group: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  /** Default: v1. */
  version?: string;
}

/** The kinds that netdra reads and writes. */
export const resources: readonly Resource[] = [
  { group: '', plural: 'nodes', kind: 'Node', namespaced: false },
  { group: '', plural: 'pods', kind: 'Pod', namespaced: true },
  { group: 'events.k8s.io', plural: 'events', kind: 'Event', namespaced: true },
  { group: 'resource.k8s.io', plural: 'resourceclaims', kind: 'ResourceClaim', namespaced: true },
  { group: 'resource.k8s.io', plural: 'resourceclaimtemplates', kind: 'ResourceClaimTemplate', namespaced: true },
  { group: 'resource.k8s.io', plural: 'deviceclasses', kind: 'DeviceClass', namespaced: false },
  { group: '', plural: 'namespaces', kind: 'Namespace', namespaced: false },
  { group: 'resource.k8s.io', plural: 'devicetaintrules', kind: 'DeviceTaintRule', namespaced: false },
  {
    group: 'admissionregistration.k8s.io',
    plural: 'mutatingwebhookconfigurations',
    kind: 'MutatingWebhookConfiguration',
    namespaced: false,
  },
  { group: 'resource.k8s.io', plural: 'resourceslices', kind: 'ResourceSlice', namespaced: false },
  {
    group: 'netdra.dev',
    version: 'v1alpha1',
    plural: 'nodenetworkdevices',
    kind: 'NodeNetworkDevices',
    namespaced: false,
  },
  ...[
    { plural: 'networkaddresspools', kind: 'NetworkAddressPool', namespaced: false },
    { plural: 'networkaddresses', kind: 'NetworkAddress', namespaced: true },
    { plural: 'networkaddressleases', kind: 'NetworkAddressLease', namespaced: false },
  ].map((each) => ({ group: 'netdra.dev', version: 'v1alpha1', ...each })),
  {
    group: 'netdra.dev',
    version: 'v1alpha1',
    plural: 'networkdevicepolicies',
    kind: 'NetworkDevicePolicy',
    namespaced: false,
  },
  {
    group: 'sriovnetwork.openshift.io',
    plural: 'sriovnetworknodestates',
    kind: 'SriovNetworkNodeState',
    namespaced: true,
  },
  {
    group: 'k8s.cni.cncf.io',
    plural: 'network-attachment-definitions',
    kind: 'NetworkAttachmentDefinition',
    namespaced: true,
  },
];

/** @throws Error for a kind that the double does not keep */
export function resourceOf(kind: string | undefined): Resource {
  const resource = resources.find((each) => each.kind === kind);
  if (resource === undefined) throw new Error(`the API server double keeps no objects of kind ${kind}`);
  return resource;
}

/** One change: an object was created (`before` missing), changed, or deleted (`after` missing). */
export interface StoreChange {
  resourceVersion: number;
  resource: Resource;
  before?: KubeObject;
  after?: KubeObject;
}

export interface StoreOptions {
  /** UIDs of objects that bring none. */
  newUid?: () => string;
  now?: () => Date;
}

/**
 * The objects of all kinds, their common version counter, and the history that watches start from.
 * Objects that it returns are frozen: everybody gets the same one.
 */
export class ObjectStore {
  /** Called with every object before it is stored. */
  readonly admit = new Set<(object: KubeObject) => void>();
  readonly #newUid: () => string;
  readonly #now: () => Date;
  readonly #objects = new Map<Resource, Map<string, KubeObject>>();
  readonly #listeners = new Set<(change: StoreChange) => void>();
  #history: StoreChange[] = [];
  #resourceVersion = 1000;
  #compactedVersion = 1000;

  constructor({ newUid = randomUUID, now = () => new Date() }: StoreOptions = {}) {
    this.#newUid = newUid;
    this.#now = now;
  }

  /** The version of the last change of anything. */
  get resourceVersion(): number {
    return this.#resourceVersion;
  }

  find(resource: Resource, namespace: string | undefined, name: string): KubeObject | undefined {
    return this.#of(resource).get(keyOf(namespace, name));
  }

  /** @throws ApiStatusError 404 */
  get(resource: Resource, namespace: string | undefined, name: string): KubeObject {
    const object = this.find(resource, namespace, name);
    if (object === undefined) throw new ApiStatusError(404, `${resource.plural} "${name}" not found`, { name });
    return object;
  }

  /** Sorted by namespace and name. */
  list(resource: Resource, namespace?: string): KubeObject[] {
    const all = [...this.#of(resource)];
    const found = namespace === undefined ? all : all.filter(([, { metadata }]) => metadata.namespace === namespace);
    return found.sort(([left], [right]) => (left < right ? -1 : 1)).map(([, object]) => object);
  }

  /** @throws ApiStatusError 409 AlreadyExists */
  create(resource: Resource, namespace: string | undefined, input: ObjectInput): KubeObject {
    const { name = '', uid = this.#newUid() } = input.metadata ?? {};
    if (this.find(resource, namespace, name) !== undefined) {
      throw new ApiStatusError(409, `${resource.plural} "${name}" already exists`, { name }, 'AlreadyExists');
    }
    const metadata = {
      ...input.metadata,
      ...(namespace === undefined ? {} : { namespace }),
      name,
      uid,
      resourceVersion: '',
      creationTimestamp: `${this.#now().toISOString().slice(0, 19)}Z`,
    };
    return this.#put(resource, undefined, { ...input, metadata } as KubeObject);
  }

  /**
   * Stores a changed object. An unchanged one gets no new version and causes no watch event.
   * @throws ApiStatusError 404, 409 if its uid or resourceVersion is not the current one
   */
  replace(resource: Resource, namespace: string | undefined, name: string, input: ObjectInput): KubeObject {
    const before = this.get(resource, namespace, name);
    checkPrecondition(before, input.metadata ?? {});
    const { uid, resourceVersion, creationTimestamp } = before.metadata;
    const metadata = { ...before.metadata, ...input.metadata, uid, resourceVersion, creationTimestamp };
    return this.#put(resource, before, { ...input, metadata } as KubeObject);
  }

  /** @throws ApiStatusError 404, 409 */
  delete(
    resource: Resource,
    namespace: string | undefined,
    name: string,
    preconditions: { uid?: string; resourceVersion?: string } = {},
  ): KubeObject {
    const before = this.get(resource, namespace, name);
    checkPrecondition(before, preconditions);
    this.#of(resource).delete(keyOf(namespace, name));
    const resourceVersion = ++this.#resourceVersion;
    const last = { ...before, metadata: { ...before.metadata, resourceVersion: String(resourceVersion) } };
    this.#publish({ resourceVersion, resource, before: deepFreeze(last) });
    return last;
  }

  /** @throws ApiStatusError 410 if changes after `resourceVersion` are already forgotten */
  changesAfter(resourceVersion: number): StoreChange[] {
    if (resourceVersion < this.#compactedVersion) {
      throw new ApiStatusError(410, `too old resource version: ${resourceVersion} (${this.#compactedVersion})`);
    }
    return this.#history.filter((change) => change.resourceVersion > resourceVersion);
  }

  /** Forgets the history, as etcd does every few minutes: requests for changes since an older version get 410. */
  compact(): void {
    this.#history = [];
    // One step ahead, so that even the version of an up-to-date client is too old.
    this.#compactedVersion = ++this.#resourceVersion;
  }

  onChange(listener: (change: StoreChange) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  #put(resource: Resource, before: KubeObject | undefined, object: KubeObject): KubeObject {
    const after = copyOf(object);
    for (const admit of this.admit) admit(after);
    if (resource.kind === 'ResourceClaim') admitClaim(before as Claim | undefined, after as Claim);
    if (before !== undefined && isDeepStrictEqual(before, after)) return before;
    after.metadata.resourceVersion = String(++this.#resourceVersion);
    this.#of(resource).set(keyOf(after.metadata.namespace, after.metadata.name), deepFreeze(after));
    const change = { resourceVersion: this.#resourceVersion, resource, after };
    this.#publish(before === undefined ? change : { ...change, before });
    return after;
  }

  #of(resource: Resource): Map<string, KubeObject> {
    const known = this.#objects.get(resource) ?? new Map<string, KubeObject>();
    this.#objects.set(resource, known);
    return known;
  }

  #publish(change: StoreChange): void {
    this.#history.push(change);
    for (const listener of [...this.#listeners]) listener(change);
  }
}

function checkPrecondition(before: KubeObject, wanted: { uid?: string; resourceVersion?: string }): void {
  const { name, uid, resourceVersion } = before.metadata;
  const isSame = (wanted.uid ?? uid) === uid && (wanted.resourceVersion || resourceVersion) === resourceVersion;
  if (isSame) return;
  throw new ApiStatusError(409, `Operation cannot be fulfilled on "${name}": the object has been modified`, { name });
}

type Claim = KubeObject & Omit<ResourceClaim, 'metadata'>;
type DeviceId = { driver: string; pool: string; device: string; shareID?: string };

/**
 * Entries of devices that are not allocated any more are dropped, and others cannot be written.
 * Source: `pkg/registry/resource/resourceclaim/strategy.go`, `pkg/apis/resource/validation`.
 * @throws ApiStatusError 422
 */
function admitClaim(before: Claim | undefined, after: Claim): void {
  const { status } = after;
  if (status?.devices === undefined) return;
  const [past, present] = [allocatedTo(before), allocatedTo(after)];
  const kept = status.devices.filter((entry) => present.has(idOf(entry)) || !past.has(idOf(entry)));
  const stranger = kept.find((entry) => !present.has(idOf(entry)));
  if (stranger !== undefined) {
    const { name } = after.metadata;
    throw new ApiStatusError(422, `"${name}" is invalid: ${idOf(stranger)} must be an allocated device`, { name });
  }
  if (kept.length > 0) status.devices = kept;
  else delete status.devices;
}

function allocatedTo(claim: Claim | undefined): Set<string> {
  return new Set((claim?.status?.allocation?.devices?.results ?? []).map(idOf));
}

function idOf({ driver, pool, device, shareID }: DeviceId): string {
  return [driver, pool, device, ...(shareID === undefined ? [] : [shareID])].join('/');
}

function keyOf(namespace: string | undefined, name: string): string {
  return `${namespace ?? ''}\0${name}`;
}

/** A copy through JSON: dates become text and `undefined` members vanish, as on the wire. */
export function wireCopy<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}
