import { ApiStatusError, badRequest } from './api-server-status.ts';
import { isJsonObject, type Json, type JsonObject, jsonEqual } from './api-server-types.ts';

/** RFC 7386: objects are merged, `null` removes, everything else replaces. */
export function applyMergePatch(target: Json | undefined, patch: Json): Json {
  if (!isJsonObject(patch)) return patch;
  const result: JsonObject = isJsonObject(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = applyMergePatch(result[key], value);
  }
  return result;
}

interface JsonPatchOperation {
  op: string;
  path: string;
  value?: Json;
}

/**
 * RFC 6902 with `add`, `replace`, `remove` and `test`; `move` and `copy` are not needed by any client here.
 * @throws ApiStatusError 400 for what is no patch, 422 when an operation does not fit the object
 */
export function applyJsonPatch(target: JsonObject, patch: Json): JsonObject {
  if (!Array.isArray(patch)) throw badRequest('json: cannot unmarshal the body into a list of JSON patch operations');
  const root = structuredClone(target);
  for (const operation of patch as unknown as JsonPatchOperation[]) applyOperation(root, operation);
  return root;
}

function applyOperation(root: JsonObject, { op, path, value }: JsonPatchOperation): void {
  const steps = path
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
  const last = steps.pop();
  if (last === undefined) throw badRequest(`JSON patch: ${op} of the whole object is not supported`);
  let parent: Json | undefined = root;
  for (const step of steps)
    parent = Array.isArray(parent) ? parent[Number(step)] : isJsonObject(parent) ? parent[step] : undefined;
  if (Array.isArray(parent)) changeList(parent, last, op, path, value);
  else if (isJsonObject(parent)) changeObject(parent, last, op, path, value);
  else throw unfit(op, path, 'missing path');
}

function changeObject(parent: JsonObject, key: string, op: string, path: string, value: Json | undefined): void {
  if (op === 'add') parent[key] = value ?? null;
  else if (!(key in parent)) throw unfit(op, path, 'missing value');
  else if (op === 'replace') parent[key] = value ?? null;
  else if (op === 'remove') delete parent[key];
  else checkTest(op, path, parent[key], value);
}

function changeList(parent: Json[], key: string, op: string, path: string, value: Json | undefined): void {
  const index = key === '-' ? parent.length : Number(key);
  const end = op === 'add' ? parent.length : parent.length - 1;
  if (!Number.isInteger(index) || index < 0 || index > end) throw unfit(op, path, 'invalid index');
  if (op === 'add') parent.splice(index, 0, value ?? null);
  else if (op === 'replace') parent[index] = value ?? null;
  else if (op === 'remove') parent.splice(index, 1);
  else checkTest(op, path, parent[index], value);
}

function checkTest(op: string, path: string, found: Json | undefined, value: Json | undefined): void {
  if (op !== 'test') throw badRequest(`JSON patch: operation "${op}" is not supported`);
  if (!jsonEqual(found, value ?? null)) throw unfit(op, path, 'test failed');
}

function unfit(op: string, path: string, why: string): ApiStatusError {
  return new ApiStatusError(
    422,
    `the server rejected our request due to an error in our request: ${op} ${path}: ${why}`,
  );
}
