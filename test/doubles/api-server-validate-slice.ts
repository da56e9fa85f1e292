import { type FieldErrors, isDnsLabel, isDnsSubdomain } from './api-server-field-errors.ts';
import { isJsonObject, type JsonObject, type KubeObject, valueAt } from './api-server-types.ts';

/** Limits of resource.k8s.io/v1, in entries or characters. */
const limits = {
  devices: 128,
  devicesWithAdvancedFeatures: 64,
  attributesAndCapacities: 32,
  attributeValues: 48,
  attributeValueLength: 64,
  domainLength: 63,
  idLength: 32,
  taints: 16,
  counterSets: 8,
  counters: 32,
  consumedCounterSets: 2,
};

const valueMembers = ['int', 'bool', 'string', 'version', 'ints', 'bools', 'strings', 'versions'];
const nodeChoices = ['nodeName', 'nodeSelector', 'allNodes', 'perDeviceNodeSelection'];

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const members = (value: unknown): [string, unknown][] => (isJsonObject(value) ? Object.entries(value) : []);

export function validateSlice(errors: FieldErrors, slice: KubeObject): void {
  const spec = slice.spec;
  if (!isJsonObject(spec)) {
    errors.add('required', 'spec');
    return;
  }
  if (errors.require(spec, 'driver', 'spec') && !isDnsSubdomain(spec.driver, 63)) {
    errors.add('invalid', 'spec.driver', 'must be a DNS subdomain of at most 63 characters', spec.driver);
  }
  validatePool(errors, spec.pool);
  const chosen = nodeChoices.filter((name) => spec[name] !== undefined && spec[name] !== false && spec[name] !== '');
  if (chosen.length !== 1) {
    errors.add(
      'invalid',
      'spec',
      `exactly one of ${nodeChoices.map((name) => `\`${name}\``).join(', ')} is required`,
      `{${chosen.join(', ')}}`,
    );
  }
  const devices = list(spec.devices);
  const counterSets = list(spec.sharedCounters);
  if (devices.length > 0 && counterSets.length > 0) {
    errors.add('invalid', 'spec', 'only one of `sharedCounters` or `devices` is allowed', '{devices, sharedCounters}');
  }
  const max = devices.some(isAdvanced) ? limits.devicesWithAdvancedFeatures : limits.devices;
  errors.atMost(devices, max, 'spec.devices');
  const names = new Set<unknown>();
  devices.forEach((device, index) => {
    const name = valueAt(device, 'name');
    if (names.has(name)) errors.add('duplicate', `spec.devices[${index}].name`, '', name);
    names.add(name);
    validateDevice(errors, device, `spec.devices[${index}]`);
  });
  validateCounterSets(errors, counterSets);
}

function validatePool(errors: FieldErrors, pool: unknown): void {
  if (errors.require(pool, 'name', 'spec.pool')) {
    const name = String(valueAt(pool, 'name'));
    if (name.length > 253 || !name.split('/').every((part) => isDnsSubdomain(part))) {
      errors.add('invalid', 'spec.pool.name', 'must be DNS subdomains joined by "/"', name);
    }
  }
  const count = valueAt(pool, 'resourceSliceCount');
  if (typeof count !== 'number' || count < 1)
    errors.add('invalid', 'spec.pool.resourceSliceCount', 'must be greater than zero', count ?? 0);
  const generation = valueAt(pool, 'generation') ?? 0;
  if (typeof generation !== 'number' || generation < 0) {
    errors.add('invalid', 'spec.pool.generation', 'must be greater than or equal to zero', generation);
  }
}

/** Taints, consumed counters and lists as attribute values are what halves the size of a slice. */
function isAdvanced(device: unknown): boolean {
  const isList = ([, attribute]: [string, unknown]) =>
    isJsonObject(attribute) && Object.values(attribute).some(Array.isArray);
  return (
    list(valueAt(device, 'taints')).length > 0 ||
    list(valueAt(device, 'consumesCounters')).length > 0 ||
    members(valueAt(device, 'attributes')).some(isList)
  );
}

function validateDevice(errors: FieldErrors, device: unknown, at: string): void {
  if (errors.require(device, 'name', at) && !isDnsLabel(valueAt(device, 'name'))) {
    errors.add('invalid', `${at}.name`, 'a lowercase RFC 1123 label is required', valueAt(device, 'name'));
  }
  const attributes = members(valueAt(device, 'attributes'));
  const capacities = members(valueAt(device, 'capacity'));
  if (attributes.length + capacities.length > limits.attributesAndCapacities) {
    const detail = `the total number of attributes and capacities must not exceed ${limits.attributesAndCapacities}`;
    errors.add('invalid', at, detail, attributes.length + capacities.length);
  }
  for (const [name, value] of attributes) {
    validateQualifiedName(errors, name, `${at}.attributes`);
    validateAttribute(errors, value, `${at}.attributes[${name}]`);
  }
  const valueCount = attributes.reduce((sum, [, value]) => sum + attributeValues(value).length, 0);
  if (valueCount > limits.attributeValues)
    errors.add('tooMany', `${at}.attributes`, `must have at most ${limits.attributeValues} values`, valueCount);
  for (const [name, capacity] of capacities) {
    validateQualifiedName(errors, name, `${at}.capacity`);
    errors.require(capacity, 'value', `${at}.capacity[${name}]`);
  }
  validateTaints(errors, valueAt(device, 'taints'), `${at}.taints`);
  errors.atMost(valueAt(device, 'consumesCounters'), limits.consumedCounterSets, `${at}.consumesCounters`);
}

function validateQualifiedName(errors: FieldErrors, name: string, field: string): void {
  const [id = '', domain, ...rest] = name.split('/').reverse();
  if (id.length > limits.idLength || !/^[A-Za-z_][A-Za-z0-9_]*$/.test(id)) {
    errors.add('invalid', field, `the name must be a C identifier of at most ${limits.idLength} characters`, name);
  }
  if (rest.length > 0 || (domain !== undefined && !isDnsSubdomain(domain, limits.domainLength))) {
    errors.add(
      'invalid',
      field,
      `the domain must be a DNS subdomain of at most ${limits.domainLength} characters`,
      name,
    );
  }
}

function attributeValues(attribute: unknown): unknown[] {
  return members(attribute).flatMap(([, value]) => value);
}

function validateAttribute(errors: FieldErrors, attribute: unknown, at: string): void {
  const present = members(attribute).filter(([name]) => valueMembers.includes(name));
  if (present.length !== 1) {
    errors.add('invalid', at, 'exactly one value must be specified', attribute);
    return;
  }
  for (const value of attributeValues(attribute)) {
    if (typeof value === 'string' && value.length > limits.attributeValueLength) {
      errors.add('tooLong', `${at}.${present[0]?.[0]}`, `may not be more than ${limits.attributeValueLength} bytes`);
    }
  }
  const [name, value] = present[0] ?? [];
  if (name === 'int' && !Number.isInteger(value)) errors.add('invalid', `${at}.int`, 'must be an integer', value);
  if (name === 'version' && !/^\d+\.\d+\.\d+([-+].+)?$/.test(String(value))) {
    errors.add('invalid', `${at}.version`, 'must be a string compatible with semver.org spec 2.0.0', value);
  }
}

function validateTaints(errors: FieldErrors, taints: unknown, field: string): void {
  errors.atMost(taints, limits.taints, field);
  list(taints).forEach((taint, index) => {
    errors.require(taint, 'key', `${field}[${index}]`);
    const effect = valueAt(taint, 'effect');
    if (!['None', 'NoSchedule', 'NoExecute'].includes(String(effect))) {
      errors.add(
        'unsupported',
        `${field}[${index}].effect`,
        'supported values: "NoExecute", "NoSchedule", "None"',
        effect ?? '',
      );
    }
  });
}

function validateCounterSets(errors: FieldErrors, counterSets: unknown[]): void {
  errors.atMost(counterSets, limits.counterSets, 'spec.sharedCounters');
  counterSets.forEach((set, index) => {
    const at = `spec.sharedCounters[${index}]`;
    errors.require(set, 'name', at);
    errors.atMost(valueAt(set, 'counters'), limits.counters, `${at}.counters`);
    for (const [name, counter] of members((set as JsonObject).counters))
      errors.require(counter, 'value', `${at}.counters[${name}]`);
  });
}
