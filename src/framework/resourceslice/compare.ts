import { isDeepStrictEqual } from 'node:util';
import type { SliceProblem } from './errors.ts';
import type { Device, DeviceTaint, SliceSpec } from './model.ts';
import { parseQuantity } from './quantity.ts';

/** Tolerance for times, ms: the API server keeps whole seconds. */
const timeToleranceMs = 1_000;

/**
 * Returns whether the API server has the wanted spec. Ignores differences in notation: quantities in another form, times that
 * the API server added to taints, omitted empty lists.
 */
export function isSameSpec(actual: SliceSpec, wanted: SliceSpec): boolean {
  const fitting = { ...wanted, devices: copyTaintTimes(wanted.devices ?? [], actual.devices ?? []) };
  // Most API servers keep the notation of the request: nothing needs rewriting then.
  return isDeepStrictEqual(actual, fitting) || isDeepStrictEqual(canonical(actual), canonical(fitting));
}

/**
 * Copies the API server's times to taints without a time, or with nearly the same time: a rewritten slice must not make an old
 * taint look new.
 */
export function copyTaintTimes(devices: Device[], published: Device[]): Device[] {
  const byName = new Map(published.map((device) => [device.name, device.taints ?? []]));
  return devices.map((device) => {
    const known = byName.get(device.name);
    if (device.taints === undefined || known === undefined) return device;
    return { ...device, taints: device.taints.map((taint) => copyTime(taint, known)) };
  });
}

function copyTime(taint: DeviceTaint, known: DeviceTaint[]): DeviceTaint {
  const timeAdded = known.find(
    ({ key, value = '', effect }) => key === taint.key && value === (taint.value ?? '') && effect === taint.effect,
  )?.timeAdded;
  if (timeAdded === undefined) return taint;
  const isOther =
    taint.timeAdded !== undefined && Math.abs(Date.parse(taint.timeAdded) - Date.parse(timeAdded)) > timeToleranceMs;
  return isOther ? taint : { ...taint, timeAdded };
}

/** Returns a canonical form of a spec: equal specs have deeply equal forms. */
function canonical(spec: SliceSpec): unknown {
  const { devices = [], sharedCounters = [], ...rest } = spec;
  return prune({
    ...rest,
    devices: devices.map(({ capacity, consumesCounters, ...device }) => ({
      ...device,
      capacity: canonicalQuantities(capacity),
      consumesCounters: canonicalQuantities(consumesCounters),
    })),
    sharedCounters: canonicalQuantities(sharedCounters),
  });
}

/**
 * Replaces every quantity by a text that is the same for equal values. Does not change names, which are keys or the values of
 * `name` and `counterSet`.
 */
function canonicalQuantities(value: unknown): unknown {
  if (typeof value === 'string') return String(parseQuantity(value) ?? value);
  if (Array.isArray(value)) return value.map(canonicalQuantities);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member]) => [
      key,
      // Names of counter sets may look like quantities: "1".
      key === 'name' || key === 'counterSet' ? member : canonicalQuantities(member),
    ]),
  );
}

/** Omits the values that Go's encoder omits: empty lists, maps and strings, `false` and undefined values. */
function prune(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(prune);
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value as Record<string, unknown>)
    .map(([key, member]): [string, unknown] => [key, prune(member)])
    // An attribute that is `false` or an empty string is still an attribute.
    .filter(([key, member]) => !isEmpty(member) || key === 'bool' || key === 'string');
  return Object.fromEntries(kept);
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/**
 * Compares a slice with its stored form. The API server drops fields that it does not know, or whose feature is off.
 * @returns one problem for each field that a device has lost
 */
export function findDroppedFields(sent: SliceSpec, stored: SliceSpec): SliceProblem[] {
  const message = 'was dropped by the API server';
  const problems: SliceProblem[] = [];
  const compareMembers = (wanted: object, kept: object, device?: string) => {
    for (const [field, value] of Object.entries(prune(wanted) as Record<string, unknown>)) {
      const members = missingMembers(field, value, (kept as Record<string, unknown>)[field]);
      for (const at of members) problems.push({ ...(device === undefined ? {} : { device }), field: at, message });
    }
  };
  const { devices: wanted = [], ...rest } = sent;
  compareMembers(rest, stored);
  for (const [index, device] of wanted.entries()) compareMembers(device, stored.devices?.[index] ?? {}, device.name);
  return problems;
}

function missingMembers(field: string, sent: unknown, kept: unknown): string[] {
  if (kept === undefined || kept === null) return [field];
  if (typeof sent !== 'object' || sent === null) return [];
  return Object.entries(sent).flatMap(([key, value]) => {
    const at = Array.isArray(sent) ? `${field}[${key}]` : `${field}.${key}`;
    return missingMembers(at, value, (kept as Record<string, unknown>)[key]);
  });
}
