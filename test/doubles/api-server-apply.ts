import {
  decodeFieldsV1,
  elementStep,
  encodeFieldsV1,
  type FieldSet,
  type FieldStep,
  fieldsOf,
  formatPath,
  isAtomicObject,
  isElementPath,
  joinPath,
  listShapeAt,
  partsOf,
} from './api-server-fields.ts';
import type { ResourceType } from './api-server-resources.ts';
import { ApiStatusError } from './api-server-status.ts';
import {
  formatTimestamp,
  isJsonObject,
  type Json,
  type JsonObject,
  jsonEqual,
  type KubeObject,
  type ManagedFieldsEntry,
} from './api-server-types.ts';

/** On whose behalf something is written. Two writers are the same only if all members but `apiVersion` are equal. */
export interface Writer {
  manager: string;
  operation: 'Apply' | 'Update';
  apiVersion: string;
  subresource?: string;
}

interface Ownership {
  entry: ManagedFieldsEntry;
  fields: FieldSet;
}

/**
 * Server-side apply of `applied` to `live`: merges it, takes away what the same manager applied before and no longer
 * does (unless somebody else owns it too), and records the owners.
 * @param applied only the part that counts: without system metadata, and without status or spec as the endpoint demands
 * @throws ApiStatusError 409 with a `FieldManagerConflict` cause for each field that another manager has set
 *   differently, unless `force`; 500 when a keyed list names the same element twice
 */
export function applyObject(
  type: ResourceType,
  live: KubeObject,
  applied: JsonObject,
  writer: Writer,
  force: boolean,
): KubeObject {
  rejectDuplicateElements(type, [], applied);
  const wanted = fieldsOf(type, applied);
  const present = fieldsOf(type, live);
  const owners = readOwners(live);
  const own = owners.find(({ entry }) => isSameWriter(entry, writer));
  const others = owners.filter((owner) => owner !== own);

  const merged = mergeValue(type, [], live as unknown as Json, applied) as unknown as KubeObject;
  const next = fieldsOf(type, merged);
  const changed = [...wanted.keys()].filter(
    (path) => !isElementPath(path) && !jsonEqual(present.get(path), next.get(path)),
  );
  const conflicts = others.flatMap((other) =>
    changed.filter((path) => other.fields.has(path)).map((path) => ({ other, path })),
  );
  if (conflicts.length > 0 && !force) throw conflictError(type, live, conflicts);
  for (const { other, path } of conflicts) other.fields.delete(path);

  const dropped = [...(own?.fields ?? [])].filter(
    (path) => !wanted.has(path) && !others.some(({ fields }) => fields.has(path)),
  );
  const result = removeFields(type, merged, dropped);
  const claimed: Ownership = { entry: newEntry(writer), fields: new Set(wanted.keys()) };
  if (
    own !== undefined &&
    sameSet(own.fields, claimed.fields) &&
    jsonEqual(withoutOwners(result), withoutOwners(live))
  ) {
    claimed.entry.time = own.entry.time;
  }
  return withOwners(result, replaceOwner(owners, own, claimed));
}

/** Records who changed what in an update, a patch or a creation: the writer gets the changed fields, others lose them. */
export function recordUpdate(
  type: ResourceType,
  before: KubeObject | undefined,
  after: KubeObject,
  writer: Writer,
): KubeObject {
  const old = before === undefined ? new Map<string, Json>() : fieldsOf(type, before);
  const now = fieldsOf(type, after);
  const changed = [...now].filter(
    ([path, value]) => !old.has(path) || (!isElementPath(path) && !jsonEqual(old.get(path), value)),
  );
  const owners = before === undefined ? [] : readOwners(before);
  for (const { fields } of owners) {
    for (const path of fields) if (!now.has(path)) fields.delete(path);
    for (const [path] of changed) fields.delete(path);
  }
  if (changed.length === 0) return withOwners(after, owners);
  const own = owners.find(({ entry }) => isSameWriter(entry, writer));
  const next: Ownership = { entry: newEntry(writer), fields: own?.fields ?? new Set() };
  for (const [path] of changed) next.fields.add(path);
  return withOwners(after, replaceOwner(owners, own, next));
}

function mergeValue(type: ResourceType, steps: FieldStep[], live: Json | undefined, applied: Json): Json {
  if (Array.isArray(applied) && Array.isArray(live)) {
    const shape = listShapeAt(type, steps);
    if (shape === 'atomic') return applied;
    if (shape === 'set') return [...live, ...applied.filter((item) => !live.some((other) => jsonEqual(other, item)))];
    const byStep = new Map(live.map((item) => [elementStep(item, shape.keys), item]));
    for (const item of applied) {
      const step = elementStep(item, shape.keys);
      byStep.set(step, mergeValue(type, [...steps, step], byStep.get(step), item));
    }
    return [...byStep.values()];
  }
  if (!isJsonObject(applied) || !isJsonObject(live) || isAtomicObject(type, steps)) return applied;
  const merged = { ...live };
  for (const [key, value] of Object.entries(applied))
    merged[key] = mergeValue(type, [...steps, `f:${key}`], live[key], value);
  return merged;
}

/** Takes fields out, and what is left empty by that. */
function removeFields(type: ResourceType, object: KubeObject, paths: string[]): KubeObject {
  if (paths.length === 0) return object;
  const gone = new Set(paths);
  const visit = (steps: FieldStep[], value: Json): Json | undefined => {
    const parts = partsOf(type, steps, value);
    if (parts === undefined || !paths.some((path) => path.startsWith(joinPath(steps)))) {
      return gone.has(joinPath(steps)) ? undefined : value;
    }
    const rests = new Map(parts.map(([step, part]) => [step, visit([...steps, step], part)]));
    const isKey = (step: FieldStep) => isKeyOf(steps.at(-1), step);
    const hasContent = parts.some(([step]) => !isKey(step) && rests.get(step) !== undefined);
    const kept = parts.flatMap(([step, part]): [FieldStep, Json][] => {
      // An element of which others own something keeps its keys, or it could not be found again.
      const rest = rests.get(step) ?? (hasContent && isKey(step) ? part : undefined);
      return rest === undefined ? [] : [[step, rest]];
    });
    if (kept.length === 0 || (gone.has(joinPath(steps)) && !hasContent)) return undefined;
    if (Array.isArray(value)) return kept.map(([, part]) => part);
    return Object.fromEntries(kept.map(([step, part]) => [step.slice(2), part]));
  };
  const result: JsonObject = {};
  for (const [name, value] of Object.entries(object as unknown as JsonObject)) {
    const kept = visit([`f:${name}`], value);
    if (kept !== undefined) result[name] = kept;
  }
  return result as unknown as KubeObject;
}

/** Whether a field is one of the keys that make an element: `f:type` of `k:{"type":"Ready"}`. */
function isKeyOf(element: FieldStep | undefined, field: FieldStep): boolean {
  return element?.startsWith('k:') === true && field.slice(2) in (JSON.parse(element.slice(2)) as JsonObject);
}

function rejectDuplicateElements(type: ResourceType, steps: FieldStep[], value: Json): void {
  const parts =
    (steps.length === 0
      ? Object.entries(value as JsonObject).map(([k, v]) => [`f:${k}`, v] as const)
      : partsOf(type, steps, value)) ?? [];
  const seen = new Set<string>();
  for (const [step, part] of parts) {
    if (seen.has(step)) {
      const message = `failed to create typed patch object: ${formatPath(joinPath(steps))}: duplicate entries for key ${step.slice(2)}`;
      throw new ApiStatusError(500, message);
    }
    seen.add(step);
    rejectDuplicateElements(type, [...steps, step], part);
  }
}

function conflictError(
  type: ResourceType,
  live: KubeObject,
  conflicts: { other: Ownership; path: string }[],
): ApiStatusError {
  const causes = conflicts.map(({ other, path }) => ({
    reason: 'FieldManagerConflict',
    message: `conflict with "${other.entry.manager}" using ${other.entry.apiVersion}`,
    field: formatPath(path),
  }));
  const count = `${causes.length} conflict${causes.length === 1 ? '' : 's'}`;
  const list = causes.map((cause) => `${cause.message}: ${cause.field}`).join('\n');
  const details = { name: live.metadata.name, group: type.group, kind: type.plural, causes };
  return new ApiStatusError(409, `Apply failed with ${count}: ${list}`, details);
}

function readOwners(object: KubeObject): Ownership[] {
  return (object.metadata.managedFields ?? []).map((entry) => ({ entry, fields: decodeFieldsV1(entry.fieldsV1) }));
}

/** In place, so that a write which changes nothing leaves the very same list. */
function replaceOwner(owners: Ownership[], own: Ownership | undefined, next: Ownership): Ownership[] {
  return own === undefined ? [...owners, next] : owners.map((owner) => (owner === own ? next : owner));
}

function withOwners(object: KubeObject, owners: Ownership[]): KubeObject {
  const managedFields = owners
    .filter(({ fields }) => fields.size > 0)
    .map(({ entry, fields }) => ({ ...entry, fieldsV1: encodeFieldsV1(fields) }));
  return { ...object, metadata: { ...object.metadata, managedFields } };
}

function withoutOwners(object: KubeObject): KubeObject {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}

function isSameWriter(entry: ManagedFieldsEntry, writer: Writer): boolean {
  return (
    entry.manager === writer.manager && entry.operation === writer.operation && entry.subresource === writer.subresource
  );
}

function newEntry(writer: Writer): ManagedFieldsEntry {
  const { subresource, ...rest } = writer;
  return {
    ...rest,
    time: formatTimestamp(),
    fieldsType: 'FieldsV1',
    fieldsV1: {},
    ...(subresource ? { subresource } : {}),
  };
}

function sameSet(left: FieldSet, right: FieldSet): boolean {
  return left.size === right.size && [...left].every((path) => right.has(path));
}
