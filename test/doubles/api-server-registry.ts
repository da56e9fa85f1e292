import { applyJsonPatch, applyMergePatch } from './api-server-patch.ts';
import type { ResourceType } from './api-server-resources.ts';
import { alreadyExists, invalid, notFound } from './api-server-status.ts';
import type { ObjectStore } from './api-server-store.ts';
import {
  authorizeDeviceStatus,
  checkIdentity,
  checkPrecondition,
  dropDeallocatedDevices,
  keepMember,
  newObject,
  resetOnCreate,
  setDefaults,
  type WriteContext,
} from './api-server-strategy.ts';
import {
  formatTimestamp,
  type Json,
  type JsonObject,
  jsonCopy,
  jsonEqual,
  type KubeObject,
  valueAt,
} from './api-server-types.ts';
import { validateObject } from './api-server-validate.ts';

export type PatchType = 'merge' | 'json';

export interface DeleteOptions {
  preconditions?: { uid?: string; resourceVersion?: string };
  gracePeriodSeconds?: number;
}

/** The switches of a test. */
export interface RegistryPolicy {
  /** Drivers that may change `status.devices` (permission on `resourceclaims/driver`); `undefined`: all may. */
  deviceStatusDrivers?: string[] | undefined;
  /** Run on every object before it is validated, e.g. to drop fields like a server with a feature switched off. */
  admit: Set<(type: ResourceType, object: KubeObject) => void>;
}

/** The verbs of the API on top of the store: what is kept of a write, and what is refused. */
export class Registry {
  readonly #store: ObjectStore;
  readonly #policy: RegistryPolicy;

  constructor(store: ObjectStore, policy: RegistryPolicy) {
    this.#store = store;
    this.#policy = policy;
  }

  /** @throws ApiStatusError 404 */
  get(type: ResourceType, namespace: string | undefined, name: string): KubeObject {
    const object = this.#store.get(type, namespace, name);
    if (object === undefined) throw notFound(type, name);
    return object;
  }

  /** @throws ApiStatusError 400, 409 AlreadyExists, 422 */
  create(type: ResourceType, namespace: string | undefined, input: JsonObject, context: WriteContext): KubeObject {
    const object = newObject(type, namespace, input);
    if (context.endpoint === 'main') resetOnCreate(type, object);
    setDefaults(type, object);
    for (const admit of this.#policy.admit) admit(type, object);
    this.#validate(type, undefined, object);
    const { name } = object.metadata;
    if (this.#store.get(type, namespace, name) !== undefined) throw alreadyExists(type, name);
    return context.dryRun === true ? object : this.#store.put(type, object);
  }

  /** @throws ApiStatusError 400, 404, 409 Conflict, 422 */
  update(
    type: ResourceType,
    namespace: string | undefined,
    name: string,
    input: JsonObject,
    context: WriteContext,
  ): KubeObject {
    const before = this.get(type, namespace, name);
    checkIdentity(type, before, input);
    return this.#commit(type, before, this.#prepareUpdate(type, before, input, context), context);
  }

  /** @throws ApiStatusError 400, 404, 409 Conflict, 422 */
  patch(
    type: ResourceType,
    namespace: string | undefined,
    name: string,
    kind: PatchType,
    patch: Json,
    context: WriteContext,
  ): KubeObject {
    const before = this.get(type, namespace, name);
    const plain = before as unknown as JsonObject;
    const input = (kind === 'merge' ? applyMergePatch(plain, patch) : applyJsonPatch(plain, patch)) as JsonObject;
    checkIdentity(type, before, input);
    return this.#commit(type, before, this.#prepareUpdate(type, before, input, context), context);
  }

  /**
   * Removes the object, or marks it as being deleted while it has finalizers or, for a pod on a node, a grace period.
   * @throws ApiStatusError 404, 409 when a precondition does not hold
   */
  delete(type: ResourceType, namespace: string | undefined, name: string, options: DeleteOptions = {}): KubeObject {
    const object = this.get(type, namespace, name);
    const { uid, resourceVersion } = options.preconditions ?? {};
    checkPrecondition(type, object, 'UID', uid, object.metadata.uid);
    checkPrecondition(type, object, 'ResourceVersion', resourceVersion, object.metadata.resourceVersion);
    const graceSeconds =
      type.kind === 'Pod' && valueAt(object, 'spec.nodeName') !== undefined ? (options.gracePeriodSeconds ?? 0) : 0;
    const isHeld = graceSeconds > 0 || (object.metadata.finalizers?.length ?? 0) > 0;
    if (!isHeld) return this.#store.remove(type, object);
    if (object.metadata.deletionTimestamp !== undefined) return object;
    object.metadata.deletionTimestamp = formatTimestamp(new Date(Date.now() + graceSeconds * 1000));
    object.metadata.deletionGracePeriodSeconds = graceSeconds;
    return this.#store.put(type, object);
  }

  /** The object after an update: what the server keeps stays, and only the endpoint's half changes. */
  #prepareUpdate(type: ResourceType, before: KubeObject, input: JsonObject, context: WriteContext): KubeObject {
    const after = jsonCopy(input) as unknown as KubeObject;
    after.apiVersion = before.apiVersion;
    after.kind = before.kind;
    const { labels, annotations, ownerReferences, finalizers } = after.metadata;
    const ownedByClient = context.endpoint === 'status' ? {} : { labels, annotations, ownerReferences, finalizers };
    after.metadata = jsonCopy(Object.assign({}, before.metadata, ownedByClient));
    if (type.hasStatus && context.endpoint === 'main') keepMember(before, after, 'status');
    if (context.endpoint === 'status') keepMember(before, after, 'spec');
    setDefaults(type, after);
    if (type.kind === 'ResourceClaim') dropDeallocatedDevices(before, after);
    for (const admit of this.#policy.admit) admit(type, after);
    if (type.hasGeneration && !jsonEqual(before.spec, after.spec))
      after.metadata.generation = (before.metadata.generation ?? 0) + 1;
    this.#validate(type, before, after);
    if (context.endpoint === 'status')
      authorizeDeviceStatus(type, before, after, context.verb, this.#policy.deviceStatusDrivers);
    return after;
  }

  /** A write that changes nothing gets no new resourceVersion and is seen by no watch. */
  #commit(type: ResourceType, before: KubeObject, after: KubeObject, context: WriteContext): KubeObject {
    if (jsonEqual(before, after)) return before;
    if (context.dryRun === true) return after;
    if (after.metadata.deletionTimestamp !== undefined && (after.metadata.finalizers?.length ?? 0) === 0) {
      if ((after.metadata.deletionGracePeriodSeconds ?? 0) === 0) return this.#store.remove(type, after);
    }
    return this.#store.put(type, after);
  }

  #validate(type: ResourceType, before: KubeObject | undefined, after: KubeObject): void {
    const errors = validateObject(type, before, after);
    if (errors.length > 0) throw invalid(type, after.metadata.name, errors);
  }
}
