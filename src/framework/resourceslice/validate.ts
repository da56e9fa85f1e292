import { isObject } from '../../lib/is-object.ts';
import { attributeKinds } from '../metadata/document/attribute.ts';
import type { DeviceAttribute } from '../metadata/index.ts';
import type { SliceProblem } from './errors.ts';
import { type Counter, type CounterSet, type Device, type DeviceTaint, type Pool, taintEffects } from './model.ts';
import {
  attributeNameProblem,
  dnsLabelProblem,
  isDnsSubdomain,
  labelKeyProblem,
  labelValueProblem,
  semverProblem,
} from './names.ts';
import { parseQuantity } from './quantity.ts';

/** Limits of resource.k8s.io/v1, in entries or bytes. */
export const sliceLimits = {
  devices: 128,
  devicesWithAdvancedFeatures: 64,
  attributesAndCapacities: 32,
  attributeValues: 48,
  attributeValueBytes: 64,
  taints: 16,
  counterSets: 8,
  counters: 32,
  consumedCounterSets: 2,
  bindingConditions: 4,
} as const;

type Report = (field: string, message: string) => void;
type BindingField = 'bindingConditions' | 'bindingFailureConditions';

/** Returns whether a device has taints, counters or lists, which halve the number of devices in a slice. */
function isAdvanced({ taints = [], consumesCounters = [], attributes = {} }: Device): boolean {
  const hasList = Object.values(attributes).some((attribute) => Object.values(attribute).some(Array.isArray));
  return taints.length > 0 || consumesCounters.length > 0 || hasList;
}

/**
 * Finds faults for which the API server would refuse the pool, before anything is sent. The API server's own errors name only a
 * slice and the index of a device.
 * @param driver name of the driver, which must not be the domain of an attribute: names without a domain belong to the driver
 * already
 */
export function validatePool(name: string, pool: Pool, driver: string): SliceProblem[] {
  const problems: SliceProblem[] = [];
  const report: Report = (field, message) => problems.push({ field, message });
  if (name.length > 253 || !name.split('/').every(isDnsSubdomain)) {
    report('name', `"${name}" must be DNS subdomains joined by "/", at most 253 characters`);
  }
  if (!Array.isArray(pool?.devices) || !pool.devices.every(isObject)) {
    report('devices', 'must be a list of objects');
    return problems;
  }
  const { generation = 1, devices, sharedCounters = [] } = pool;
  if (!Number.isSafeInteger(generation) || generation < 1) report('generation', `${generation} must be 1 or more`);
  validateSliceSize(report, pool);
  validateCounterSets(report, sharedCounters);
  const names = new Set<string>();
  for (const device of devices) {
    const reportDevice: Report = (field, message) => problems.push({ device: device.name, field, message });
    if (names.has(device.name)) reportDevice('name', 'occurs twice in the pool');
    names.add(device.name);
    validateDevice(reportDevice, device, driver);
    validateConsumption(reportDevice, device, sharedCounters);
  }
  return problems;
}

export function maxSliceSize(devices: readonly Device[]): number {
  return devices.some(isAdvanced) ? sliceLimits.devicesWithAdvancedFeatures : sliceLimits.devices;
}

function validateSliceSize(report: Report, { devices, maxDevicesPerSlice: size }: Pool): void {
  const max = maxSliceSize(devices);
  if (size !== undefined && !(Number.isInteger(size) && size >= 1 && size <= max)) {
    report('maxDevicesPerSlice', `${size} must be 1 to ${max} for these devices`);
  }
}

function validateDevice(report: Report, device: Device, driver: string): void {
  reportIf(report, 'name', dnsLabelProblem(device.name));
  const attributes = Object.entries(device.attributes ?? {});
  const capacities = Object.entries(device.capacity ?? {});
  atMost(report, 'attributes and capacity together', attributes.length + capacities.length, 'attributesAndCapacities');
  atMost(report, 'attributes', attributes.flatMap(([, value]) => valuesOf(value)).length, 'attributeValues', 'values');
  for (const [name, value] of attributes) {
    reportIf(report, `attributes[${name}]`, attributeNameProblem(name, driver));
    validateAttribute(report, `attributes[${name}]`, value);
  }
  for (const [name, { value }] of capacities) {
    reportIf(report, `capacity[${name}]`, attributeNameProblem(name, driver));
    validateQuantity(report, `capacity[${name}].value`, value);
  }
  validateTaints(report, device.taints ?? []);
  validateBindingConditions(report, device);
}

function validateBindingConditions(report: Report, device: Device): void {
  const check = (field: BindingField, other: BindingField) => {
    const conditions = device[field] ?? [];
    atMost(report, field, conditions.length, 'bindingConditions');
    for (const condition of new Set(conditions)) reportIf(report, field, labelKeyProblem(condition));
    if (new Set(conditions).size < conditions.length) report(field, 'has a condition twice');
    if (conditions.length === 0 && (device[other]?.length ?? 0) > 0) report(field, `are required with ${other}`);
  };
  check('bindingConditions', 'bindingFailureConditions');
  check('bindingFailureConditions', 'bindingConditions');
}

/** Returns whether a text is an RFC 3339 time for the API server. */
function isTime(text: string): boolean {
  const form = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
  return form.test(text) && !Number.isNaN(Date.parse(text));
}

function valuesOf(attribute: DeviceAttribute): unknown[] {
  return Object.values(attribute).flat();
}

function validateAttribute(report: Report, field: string, attribute: DeviceAttribute): void {
  const present = Object.entries(attribute).filter(([, value]) => value !== undefined);
  const [kind, value] = present[0] ?? [];
  if (present.length !== 1 || !attributeKinds.some((member) => member === kind)) {
    report(field, `must have exactly one of ${attributeKinds.join(', ')}`);
    return;
  }
  if (Array.isArray(value) && value.length === 0) report(`${field}.${kind}`, 'must have at least one value');
  for (const each of valuesOf(attribute)) reportIf(report, `${field}.${kind}`, valueProblem(kind ?? '', each));
}

/**
 * Returns the fault of an attribute's value, if any. @param kind member of the attribute; for the values of a list, without its
 * `s`
 */
function valueProblem(kind: string, value: unknown): string | undefined {
  switch (kind.replace(/s$/, '')) {
    case 'int':
      if (typeof value === 'bigint') return `${value} is a bigint: pass a number`;
      return Number.isSafeInteger(value) ? undefined : `${value} must be an integer, at most 2^53 - 1 either way`;
    case 'bool':
      return typeof value === 'boolean' ? undefined : `${value} must be true or false`;
    case 'version':
      return textProblem(value) ?? semverProblem(String(value));
    default:
      return textProblem(value);
  }
}

function textProblem(value: unknown): string | undefined {
  if (typeof value !== 'string') return `${value} must be a text`;
  const { attributeValueBytes: max } = sliceLimits;
  return Buffer.byteLength(value) <= max ? undefined : `"${value}" is longer than ${max} bytes`;
}

function validateQuantity(report: Report, field: string, value: string): void {
  if (parseQuantity(value) === undefined) report(field, `"${value}" is not a quantity such as 10G, 64Mi or 1500`);
}

function validateTaints(report: Report, taints: DeviceTaint[]): void {
  atMost(report, 'taints', taints.length, 'taints');
  taints.forEach(({ key, value, effect, timeAdded }, index) => {
    const field = `taints[${index}]`;
    reportIf(report, `${field}.key`, labelKeyProblem(key));
    reportIf(report, `${field}.value`, labelValueProblem(value ?? ''));
    if (!taintEffects.includes(effect)) report(`${field}.effect`, `"${effect}" must be ${taintEffects.join(' or ')}`);
    if (timeAdded !== undefined && !isTime(timeAdded)) {
      report(`${field}.timeAdded`, `"${timeAdded}" must be a time as in RFC 3339`);
    }
  });
}

function validateCounterSets(report: Report, sets: CounterSet[]): void {
  const names = new Set<string>();
  for (const { name, counters } of sets) {
    reportIf(report, 'sharedCounters', dnsLabelProblem(name));
    if (names.has(name)) report(`sharedCounters[${name}]`, 'occurs twice in the pool');
    names.add(name);
    validateCounters(report, `sharedCounters[${name}]`, counters);
  }
}

function validateCounters(report: Report, field: string, counters: Record<string, Counter>): void {
  if (Object.keys(counters).length === 0) report(`${field}.counters`, 'must have at least one counter');
  atMost(report, `${field}.counters`, Object.keys(counters).length, 'counters');
  for (const [name, { value }] of Object.entries(counters)) {
    reportIf(report, `${field}.counters[${name}]`, dnsLabelProblem(name));
    validateQuantity(report, `${field}.counters[${name}].value`, value);
  }
}

function validateConsumption(report: Report, { consumesCounters = [] }: Device, sets: CounterSet[]): void {
  atMost(report, 'consumesCounters', consumesCounters.length, 'consumedCounterSets');
  const seen = new Set<string>();
  for (const { counterSet, counters } of consumesCounters) {
    const field = `consumesCounters[${counterSet}]`;
    if (seen.has(counterSet)) report(field, 'occurs twice');
    seen.add(counterSet);
    validateCounters(report, field, counters);
    const set = sets.find(({ name }) => name === counterSet);
    if (set === undefined) report(field, 'is not a counter set of the pool');
    for (const name of set === undefined ? [] : Object.keys(counters)) {
      if (!Object.hasOwn(set?.counters ?? {}, name))
        report(`${field}.counters[${name}]`, 'is not a counter of that set');
    }
  }
}

function atMost(report: Report, field: string, count: number, limit: keyof typeof sliceLimits, unit = 'entries'): void {
  const max = sliceLimits[limit];
  if (count > max) report(field, `has ${count} ${unit}, at most ${max} are allowed`);
}

function reportIf(report: Report, field: string, problem: string | undefined): void {
  if (problem !== undefined) report(field, problem);
}
