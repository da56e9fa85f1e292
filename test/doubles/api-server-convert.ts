import { apiVersionOf, type ResourceType } from './api-server-resources.ts';
import { isJsonObject, type Json, type JsonObject, jsonCopy, type KubeObject } from './api-server-types.ts';

/**
 * An object in the shape of another version of its API. resource.k8s.io/v1 and v1beta2 have the same shape; v1beta1
 * keeps what is in a device under `basic` and lacks the `exactly` around a plain request.
 */
export function toServedVersion(type: ResourceType, object: KubeObject, version: string): KubeObject {
  const served = jsonCopy(object);
  served.apiVersion = apiVersionOf(type, version);
  if (version === 'v1beta1') reshape(type, served, wrapDevice, flattenRequest);
  return served;
}

/** The opposite of `toServedVersion`: what a client sent, in the stored shape. */
export function toStoredVersion(type: ResourceType, object: JsonObject, version: string): JsonObject {
  const stored = jsonCopy(object);
  stored.apiVersion = apiVersionOf(type, type.storageVersion);
  if (version === 'v1beta1') reshape(type, stored, unwrapDevice, nestRequest);
  return stored;
}

function reshape(
  type: ResourceType,
  object: { [field: string]: unknown },
  changeDevice: (device: JsonObject) => JsonObject,
  changeRequest: (request: JsonObject) => JsonObject,
): void {
  const spec = object.spec;
  if (!isJsonObject(spec)) return;
  if (type.kind === 'ResourceSlice') changeEach(spec, 'devices', changeDevice);
  const claimSpec = type.kind === 'ResourceClaimTemplate' ? spec.spec : spec;
  if (type.kind !== 'ResourceSlice' && isJsonObject(claimSpec) && isJsonObject(claimSpec.devices)) {
    changeEach(claimSpec.devices, 'requests', changeRequest);
  }
}

function changeEach(parent: JsonObject, field: string, change: (item: JsonObject) => JsonObject): void {
  const list = parent[field];
  if (Array.isArray(list)) parent[field] = list.map((item: Json) => (isJsonObject(item) ? change(item) : item));
}

function wrapDevice({ name = '', ...basic }: JsonObject): JsonObject {
  return { name, basic };
}

function unwrapDevice({ basic, ...rest }: JsonObject): JsonObject {
  return { ...rest, ...(isJsonObject(basic) ? basic : {}) };
}

function flattenRequest({ exactly, ...rest }: JsonObject): JsonObject {
  return { ...rest, ...(isJsonObject(exactly) ? exactly : {}) };
}

function nestRequest({ name, firstAvailable, ...exactly }: JsonObject): JsonObject {
  return {
    ...(name === undefined ? {} : { name }),
    ...(firstAvailable === undefined ? {} : { firstAvailable }),
    ...(Object.keys(exactly).length === 0 ? {} : { exactly }),
  };
}
