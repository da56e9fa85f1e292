import { isDeepStrictEqual } from 'node:util';
import { copyOf } from '../../src/lib/copy.ts';
import { ApiStatusError } from './api-server-status.ts';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
type Parent = { [key: string]: Json };

interface JsonPatchOperation {
  op: 'add' | 'replace' | 'remove' | 'test';
  path: string;
  value?: Json;
}

/** @throws ApiStatusError 415 for a patch of another type, 422 if an operation does not fit the object */
export function applyPatch<T extends object>(target: T, contentType: string | undefined, patch: unknown): T {
  if (contentType === 'application/merge-patch+json') return mergePatch(target as Json, patch as Json) as T;
  if (contentType !== 'application/json-patch+json') throw new ApiStatusError(415, `no patch: ${contentType}`);
  const root = copyOf(target);
  for (const operation of patch as JsonPatchOperation[]) applyOperation(root as Json, operation);
  return root;
}

/** RFC 7386: objects are merged, `null` removes, everything else replaces. */
function mergePatch(target: Json | undefined, patch: Json): Json {
  if (!isObject(patch)) return patch;
  const result = isObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = mergePatch(result[key], value);
  }
  return result;
}

/** RFC 6902, without `move` and `copy`. */
function applyOperation(root: Json, { op, path, value = null }: JsonPatchOperation): void {
  const steps = path.split('/').map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
  const last = steps.pop() ?? '';
  const parent = steps.slice(1).reduce<Json | undefined>((each, step) => (each as Parent | undefined)?.[step], root);
  const unfit = new ApiStatusError(422, `the request is invalid: ${op} ${path} does not fit`);
  if (typeof parent !== 'object' || parent === null) throw unfit;
  const key = Array.isArray(parent) && last === '-' ? String(parent.length) : last;
  const isThere = key in parent;
  const isAppended = Array.isArray(parent) && key === String(parent.length);
  if (!isThere && !(op === 'add' && (!Array.isArray(parent) || isAppended))) throw unfit;
  if (op === 'test' && !isDeepStrictEqual((parent as Parent)[key], value)) throw unfit;
  if (op === 'test') return;
  if (Array.isArray(parent)) parent.splice(Number(key), op === 'add' ? 0 : 1, ...(op === 'remove' ? [] : [value]));
  else if (op === 'remove') delete parent[key];
  else parent[key] = value;
}

function isObject(value: Json | undefined): value is Parent {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
