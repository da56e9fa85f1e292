import { randomBytes, randomUUID } from 'node:crypto';
import { apiVersionOf, type ResourceType } from './api-server-resources.ts';
import { badRequest, conflict, invalid, staleObjectMessage } from './api-server-status.ts';
import {
  formatTimestamp,
  isJsonObject,
  type JsonObject,
  jsonCopy,
  jsonEqual,
  type KubeObject,
  valueAt,
} from './api-server-types.ts';
import { deviceKey } from './api-server-validate-claim.ts';

/** What is asked, and through which endpoint. */
export interface WriteContext {
  /** `status` for the status subresource; `all` for a test that writes the whole object at once. */
  endpoint: 'main' | 'status' | 'all';
  dryRun?: boolean;
  /** HTTP verb as RBAC knows it, for the texts of refusals. */
  verb: 'create' | 'update' | 'patch';
}

/** The object of a creation with the metadata that the server gives it. @throws ApiStatusError 400, 422 */
export function newObject(type: ResourceType, namespace: string | undefined, input: JsonObject): KubeObject {
  const object = jsonCopy(input) as unknown as KubeObject;
  checkKind(type, object);
  const metadata = (object.metadata ?? {}) as Partial<KubeObject['metadata']>;
  if (metadata.resourceVersion !== undefined && metadata.resourceVersion !== '') {
    throw badRequest('resourceVersion should not be set on objects to be created');
  }
  const name = metadata.name ?? (metadata.generateName === undefined ? '' : metadata.generateName + randomSuffix());
  if (name === '') {
    throw invalid(type, '', [
      { reason: 'required', field: 'metadata.name', detail: 'name or generateName is required' },
    ]);
  }
  if (
    type.namespaced &&
    namespace !== undefined &&
    metadata.namespace !== undefined &&
    metadata.namespace !== namespace
  ) {
    throw badRequest('the namespace of the provided object does not match the namespace sent on the request');
  }
  object.metadata = {
    ...metadata,
    name,
    ...(namespace === undefined ? {} : { namespace }),
    uid: metadata.uid ?? randomUUID(),
    resourceVersion: '',
    creationTimestamp: formatTimestamp(),
    ...(type.hasGeneration ? { generation: 1 } : {}),
  };
  if (!type.namespaced) delete object.metadata.namespace;
  return object;
}

export function checkKind(type: ResourceType, object: Partial<KubeObject>): void {
  const { kind, apiVersion } = object;
  if (kind !== type.kind || apiVersion !== apiVersionOf(type, type.storageVersion)) {
    throw badRequest(
      `${apiVersion ?? ''}, Kind=${kind ?? ''} in the body does not fit the resource ${type.plural} (Kind=${type.kind})`,
    );
  }
}

export function checkIdentity(type: ResourceType, before: KubeObject, input: JsonObject): void {
  const metadata = isJsonObject(input.metadata) ? input.metadata : {};
  const { name, uid, resourceVersion } = metadata;
  if (name !== undefined && name !== before.metadata.name) {
    throw badRequest(`the name of the object (${name}) does not match the name on the URL (${before.metadata.name})`);
  }
  if (uid !== undefined && uid !== '') checkPrecondition(type, before, 'UID', uid, before.metadata.uid);
  if (resourceVersion !== undefined && resourceVersion !== '' && resourceVersion !== before.metadata.resourceVersion) {
    throw conflict(type, before.metadata.name, staleObjectMessage);
  }
}

export function checkPrecondition(
  type: ResourceType,
  object: KubeObject,
  what: string,
  wanted: unknown,
  found: string,
): void {
  if (wanted === undefined || wanted === null || wanted === found) return;
  const why = `Precondition failed: ${what} in precondition: ${wanted}, ${what} in object meta: ${found}`;
  throw conflict(type, object.metadata.name, why);
}

export function keepMember(before: KubeObject, after: KubeObject, member: string): void {
  if (before[member] === undefined) delete after[member];
  else after[member] = before[member];
}

/** A client chooses no UID, and only nodes may be born with a status. */
export function resetOnCreate(type: ResourceType, object: KubeObject): void {
  object.metadata.uid = randomUUID();
  if (type.kind === 'ResourceClaim') delete object.status;
  if (type.kind === 'Pod') object.status = { phase: 'Pending', qosClass: 'BestEffort' };
}

export function setDefaults(type: ResourceType, object: KubeObject): void {
  if (type.kind !== 'ResourceSlice') return;
  const devices = valueAt(object, 'spec.devices');
  for (const device of Array.isArray(devices) ? devices : []) {
    const taints = valueAt(device, 'taints');
    for (const taint of Array.isArray(taints) ? taints : [])
      if (isJsonObject(taint)) taint.timeAdded ??= formatTimestamp();
  }
}

/** Device status goes when its device is no longer allocated. */
export function dropDeallocatedDevices(before: KubeObject, after: KubeObject): void {
  if (!isJsonObject(after.status) || !Array.isArray(after.status.devices)) return;
  const keys = (object: KubeObject) => {
    const results = valueAt(object, 'status.allocation.devices.results');
    return new Set(Array.isArray(results) ? results.map(deviceKey) : []);
  };
  const current = keys(after);
  const gone = new Set([...keys(before)].filter((key) => !current.has(key)));
  const kept = after.status.devices.filter((device) => !gone.has(deviceKey(device)));
  if (kept.length > 0) after.status.devices = kept;
  else delete after.status.devices;
}

function changedDrivers(before: KubeObject, after: KubeObject): string[] {
  const byKey = (object: KubeObject) => {
    const devices = valueAt(object, 'status.devices');
    return new Map((Array.isArray(devices) ? devices : []).map((device) => [deviceKey(device), device]));
  };
  const old = byKey(before);
  const now = byKey(after);
  const changed = [...old.keys(), ...now.keys()].filter((key) => !jsonEqual(old.get(key), now.get(key)));
  return [...new Set(changed.map((key) => String(valueAt(now.get(key) ?? old.get(key), 'driver'))))].sort();
}

const suffixAlphabet = 'bcdfghjklmnpqrstvwxz2456789';

function randomSuffix(): string {
  return [...randomBytes(5)].map((byte) => suffixAlphabet[byte % suffixAlphabet.length]).join('');
}

/** @param allowed drivers whose entries the writer may change; `undefined`: any. @throws ApiStatusError 422 */
export function authorizeDeviceStatus(
  type: ResourceType,
  before: KubeObject,
  after: KubeObject,
  verb: string,
  allowed: string[] | undefined,
): void {
  if (type.kind !== 'ResourceClaim' || allowed === undefined) return;
  const errors = changedDrivers(before, after)
    .filter((driver) => !allowed.includes(driver))
    .map((driver) => {
      const verbs = `[associated-node:${verb} arbitrary-node:${verb}]`;
      const detail = `changing status.devices requires resource="resourceclaims/driver", verb="${verbs}" permission: no rule allows it for driver "${driver}"`;
      return { reason: 'forbidden' as const, field: 'status.devices', detail };
    });
  if (errors.length > 0) throw invalid(type, after.metadata.name, errors);
}
