import type { ResourceType } from './api-server-resources.ts';
import { type FieldsV1, isJsonObject, type Json, type JsonObject, type KubeObject } from './api-server-types.ts';

/** How a list is merged: by the values of some members, as a set, or as one value. */
export type ListShape = { keys: string[] } | 'set' | 'atomic';

/** A step from an object to a part of it, as FieldsV1 writes it: `f:spec`, `k:{"type":"Ready"}`, `v:"a"`. */
export type FieldStep = string;

/** Fields as a set of paths; a path is its steps joined by NUL. */
export type FieldSet = Set<string>;

const anyKind: Record<string, ListShape> = {
  'metadata.finalizers': 'set',
  'metadata.ownerReferences': { keys: ['uid'] },
  'status.conditions': { keys: ['type'] },
};

const byKind: Record<string, Record<string, ListShape>> = {
  ResourceClaim: {
    'status.devices': { keys: ['driver', 'device', 'pool', 'shareID'] },
    'status.devices.conditions': { keys: ['type'] },
    'status.reservedFor': { keys: ['uid'] },
  },
  Pod: {
    'spec.containers': { keys: ['name'] },
    'spec.initContainers': { keys: ['name'] },
    'spec.volumes': { keys: ['name'] },
    'spec.resourceClaims': { keys: ['name'] },
    'status.resourceClaimStatuses': { keys: ['name'] },
  },
};

/** Objects that count as one value although they have members: free-form parts without a schema. */
const atomicObjects: Record<string, string[]> = {
  ResourceClaim: ['status.devices.data', 'status.allocation.nodeSelector'],
};

/** Metadata that belongs to the server: nobody owns it. */
const systemMetadata = new Set([
  'name',
  'namespace',
  'generateName',
  'uid',
  'resourceVersion',
  'generation',
  'creationTimestamp',
  'deletionTimestamp',
  'deletionGracePeriodSeconds',
  'selfLink',
  'managedFields',
]);

export function joinPath(steps: FieldStep[]): string {
  return steps.join('\0');
}

export function splitPath(path: string): FieldStep[] {
  return path.split('\0');
}

/** `.status.devices[device="vf0",driver="a.b"].data`, as conflicts are reported. */
export function formatPath(path: string): string {
  return splitPath(path)
    .map((step) => {
      if (step.startsWith('f:')) return `.${step.slice(2)}`;
      if (step.startsWith('v:')) return `[=${step.slice(2)}]`;
      const keys = Object.entries(JSON.parse(step.slice(2)) as JsonObject);
      return `[${keys.map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(',')}]`;
    })
    .join('');
}

/** How the list at these steps is merged. List elements do not count: `status.devices.conditions`. */
export function listShapeAt(type: ResourceType, steps: FieldStep[]): ListShape {
  const path = fieldPath(steps);
  return byKind[type.kind]?.[path] ?? anyKind[path] ?? 'atomic';
}

export function isAtomicObject(type: ResourceType, steps: FieldStep[]): boolean {
  return atomicObjects[type.kind]?.includes(fieldPath(steps)) ?? false;
}

/** The step to an element of a keyed list; keys that the element lacks are left out. */
export function elementStep(element: Json, keys: string[]): FieldStep {
  const members = isJsonObject(element) ? element : {};
  const present = [...keys].sort().filter((key) => members[key] !== undefined);
  return `k:${JSON.stringify(Object.fromEntries(present.map((key) => [key, members[key]])))}`;
}

/** The parts that a value is merged by, each with its step; `undefined` if it is one value. */
export function partsOf(type: ResourceType, steps: FieldStep[], value: unknown): [FieldStep, Json][] | undefined {
  if (Array.isArray(value)) {
    const shape = listShapeAt(type, steps);
    if (shape === 'atomic' || value.length === 0) return undefined;
    if (shape === 'set') return value.map((item: Json) => [`v:${JSON.stringify(item)}`, item]);
    return value.map((item: Json) => [elementStep(item, shape.keys), item]);
  }
  if (!isJsonObject(value) || isAtomicObject(type, steps) || Object.keys(value).length === 0) return undefined;
  return Object.entries(value).map(([key, member]) => [`f:${key}`, member]);
}

/** Every field of an object that someone can own, with its value. Elements of keyed lists are fields of their own. */
export function fieldsOf(type: ResourceType, object: KubeObject | JsonObject): Map<string, Json> {
  const fields = new Map<string, Json>();
  const visit = (steps: FieldStep[], value: Json) => {
    if (steps.length > 0 && !steps.at(-1)?.startsWith('f:')) fields.set(joinPath(steps), value);
    const parts = partsOf(type, steps, value);
    if (parts === undefined) fields.set(joinPath(steps), value);
    else for (const [step, part] of parts) visit([...steps, step], part);
  };
  for (const [name, value] of Object.entries(object as JsonObject)) {
    if (name === 'apiVersion' || name === 'kind' || value === undefined) continue;
    if (name !== 'metadata') visit([`f:${name}`], value);
    else if (isJsonObject(value)) {
      for (const [key, member] of Object.entries(value)) {
        if (!systemMetadata.has(key)) visit(['f:metadata', `f:${key}`], member);
      }
    }
  }
  return fields;
}

/** Whether a path is an element of a list as such, which several may own without being in conflict. */
export function isElementPath(path: string): boolean {
  return !splitPath(path).at(-1)?.startsWith('f:');
}

export function encodeFieldsV1(fields: Iterable<string>): FieldsV1 {
  const root: FieldsV1 = {};
  const members = new Set(fields);
  for (const path of [...members].sort()) {
    let node = root;
    const steps = splitPath(path);
    steps.forEach((step, index) => {
      node[step] ??= {};
      node = node[step];
      if (index < steps.length - 1 && members.has(joinPath(steps.slice(0, index + 1)))) node['.'] ??= {};
    });
  }
  return root;
}

export function decodeFieldsV1(root: FieldsV1): FieldSet {
  const fields: FieldSet = new Set();
  const visit = (steps: FieldStep[], node: FieldsV1) => {
    const entries = Object.entries(node);
    if (steps.length > 0 && (entries.length === 0 || '.' in node)) fields.add(joinPath(steps));
    for (const [step, child] of entries) if (step !== '.') visit([...steps, step], child);
  };
  visit([], root);
  return fields;
}

function fieldPath(steps: FieldStep[]): string {
  return steps
    .filter((step) => step.startsWith('f:'))
    .map((step) => step.slice(2))
    .join('.');
}
