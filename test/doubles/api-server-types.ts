/** JSON as the API server stores it. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface ObjectMeta {
  name: string;
  namespace?: string;
  uid: string;
  /** Decimal; grows with every change of anything in the server. */
  resourceVersion: string;
  creationTimestamp: string;
  generateName?: string;
  generation?: number;
  deletionTimestamp?: string;
  deletionGracePeriodSeconds?: number;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: { apiVersion: string; kind: string; name: string; uid: string; controller?: boolean }[];
  finalizers?: string[];
}

/** A stored object. `spec`, `status` and what else it has are plain JSON. */
export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  [field: string]: unknown;
}

/** What a test may hand in: the server fills in the rest of the metadata. Dates become RFC 3339 text. */
export interface ObjectInput {
  apiVersion?: string;
  kind?: string;
  metadata?: {
    name?: string;
    namespace?: string;
    generateName?: string;
    uid?: string;
    resourceVersion?: string;
  };
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A copy that went through JSON: dates become text and `undefined` members vanish, as on the wire. */
export function jsonCopy<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

/** Deep equality of JSON values; the order of object members does not count. */
export function jsonEqual(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => jsonEqual(item, right[index]));
  }
  if (!isJsonObject(left) || !isJsonObject(right)) return false;
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length && keys.every((key) => key in right && jsonEqual(left[key], right[key]))
  );
}

/** The value at a dotted path, e.g. `spec.pool.name`; `undefined` where a step is missing. */
export function valueAt(object: unknown, path: string): unknown {
  let current: unknown = object;
  for (const step of path.split('.')) {
    if (!isJsonObject(current)) return undefined;
    current = current[step];
  }
  return current;
}

/** Now in the API's own format: RFC 3339 in UTC, whole seconds. */
export function formatTimestamp(date = new Date()): string {
  return `${date.toISOString().slice(0, 19)}Z`;
}
