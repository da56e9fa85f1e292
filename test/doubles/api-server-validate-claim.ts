import { isIP } from 'node:net';
import { type FieldErrors, isDnsLabel, isDnsSubdomain } from './api-server-field-errors.ts';
import { isJsonObject, type JsonObject, jsonEqual, type KubeObject, valueAt } from './api-server-types.ts';

/** Limits of resource.k8s.io/v1, in entries or characters. */
const limits = {
  requests: 32,
  config: 32,
  results: 32,
  firstAvailable: 8,
  reservedFor: 256,
  conditions: 8,
  ips: 16,
  interfaceName: 256,
  hardwareAddress: 128,
  jsonBytes: 10 * 1024,
};

const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** @param field where the claim's spec is: `spec`, or `spec.spec` in a template */
export function validateClaimSpec(errors: FieldErrors, field: string, spec: unknown): void {
  const devices = valueAt(spec, 'devices');
  const requests = list(valueAt(devices, 'requests'));
  errors.atMost(requests, limits.requests, `${field}.devices.requests`);
  errors.atMost(list(valueAt(devices, 'config')), limits.config, `${field}.devices.config`);
  const names = new Set<unknown>();
  requests.forEach((request, index) => {
    const at = `${field}.devices.requests[${index}]`;
    validateName(errors, request, at, names);
    const exactly = valueAt(request, 'exactly');
    const subrequests = valueAt(request, 'firstAvailable');
    if ((exactly === undefined) === (subrequests === undefined)) {
      errors.add('required', at, 'exactly one of `exactly` or `firstAvailable` is required');
    } else if (exactly !== undefined) errors.require(exactly, 'deviceClassName', `${at}.exactly`);
    else {
      errors.atMost(subrequests, limits.firstAvailable, `${at}.firstAvailable`);
      const subnames = new Set<unknown>();
      list(subrequests).forEach((subrequest, position) => {
        validateName(errors, subrequest, `${at}.firstAvailable[${position}]`, subnames);
        errors.require(subrequest, 'deviceClassName', `${at}.firstAvailable[${position}]`);
      });
    }
  });
  validateConfig(errors, `${field}.devices.config`, valueAt(devices, 'config'));
}

function validateName(errors: FieldErrors, request: unknown, at: string, names: Set<unknown>): void {
  if (!errors.require(request, 'name', at)) return;
  const name = valueAt(request, 'name');
  if (!isDnsLabel(name)) errors.add('invalid', `${at}.name`, 'a lowercase RFC 1123 label is required', name);
  if (names.has(name)) errors.add('duplicate', `${at}.name`, '', name);
  names.add(name);
}

function validateConfig(errors: FieldErrors, field: string, config: unknown): void {
  list(config).forEach((entry, index) => {
    const opaque = valueAt(entry, 'opaque');
    if (opaque === undefined) {
      errors.add('required', `${field}[${index}].opaque`);
      return;
    }
    errors.require(opaque, 'driver', `${field}[${index}].opaque`);
    const parameters = valueAt(opaque, 'parameters');
    if (!isJsonObject(parameters)) {
      errors.add('invalid', `${field}[${index}].opaque.parameters`, 'must be a valid JSON object', parameters ?? null);
    } else if (JSON.stringify(parameters).length > limits.jsonBytes) {
      errors.add('tooLong', `${field}[${index}].opaque.parameters`, `may not be more than ${limits.jsonBytes} bytes`);
    }
  });
}

/** Checks allocation, reservations and device status. @param before `undefined` on creation */
export function validateClaimStatus(errors: FieldErrors, before: KubeObject | undefined, claim: KubeObject): void {
  const status = claim.status;
  if (!isJsonObject(status)) return;
  const allocation = status.allocation;
  errors.atMost(list(status.reservedFor), limits.reservedFor, 'status.reservedFor');
  list(status.reservedFor).forEach((consumer, index) => {
    for (const name of ['resource', 'name', 'uid']) errors.require(consumer, name, `status.reservedFor[${index}]`);
  });
  if (allocation === undefined && list(status.reservedFor).length > 0) {
    errors.add('forbidden', 'status.reservedFor', 'may not be specified when `allocated` is not set');
  }
  if (allocation !== undefined) validateAllocation(errors, claim.spec, allocation);
  const oldAllocation = valueAt(before, 'status.allocation');
  if (oldAllocation !== undefined && allocation !== undefined && !jsonEqual(oldAllocation, allocation)) {
    errors.add('invalid', 'status.allocation', 'field is immutable');
  }
  validateDevices(errors, status);
}

function validateAllocation(errors: FieldErrors, spec: unknown, allocation: unknown): void {
  const field = 'status.allocation.devices';
  const requested = requestNames(spec);
  const results = list(valueAt(allocation, 'devices.results'));
  errors.atMost(results, limits.results, `${field}.results`);
  results.forEach((result, index) => {
    const at = `${field}.results[${index}]`;
    for (const name of ['request', 'driver', 'pool', 'device']) errors.require(result, name, at);
    const request = valueAt(result, 'request');
    if (!requested.has(request))
      errors.add('invalid', `${at}.request`, 'must be the name of a request in the claim', request);
    const driver = valueAt(result, 'driver');
    if (!isDnsSubdomain(driver, 63)) errors.add('invalid', `${at}.driver`, 'must be a DNS subdomain', driver);
    const device = valueAt(result, 'device');
    if (!isDnsLabel(device)) errors.add('invalid', `${at}.device`, 'a lowercase RFC 1123 label is required', device);
  });
  list(valueAt(allocation, 'devices.config')).forEach((entry, index) => {
    const source = valueAt(entry, 'source');
    if (source !== 'FromClass' && source !== 'FromClaim') {
      errors.add(
        'unsupported',
        `${field}.config[${index}].source`,
        'supported values: "FromClaim", "FromClass"',
        source ?? '',
      );
    }
  });
  validateConfig(errors, `${field}.config`, valueAt(allocation, 'devices.config'));
}

function requestNames(spec: unknown): Set<unknown> {
  const names = new Set<unknown>();
  for (const request of list(valueAt(spec, 'devices.requests'))) {
    const name = valueAt(request, 'name');
    const subrequests = list(valueAt(request, 'firstAvailable'));
    if (subrequests.length === 0) names.add(name);
    for (const subrequest of subrequests) names.add(`${name}/${valueAt(subrequest, 'name')}`);
  }
  return names;
}

/** The four keys of an entry of `status.devices`, as one text. */
export function deviceKey(device: unknown): string {
  return ['driver', 'pool', 'device', 'shareID'].map((name) => String(valueAt(device, name) ?? '')).join('/');
}

function validateDevices(errors: FieldErrors, status: JsonObject): void {
  const allocated = new Set(list(valueAt(status, 'allocation.devices.results')).map(deviceKey));
  const seen = new Set<string>();
  list(status.devices).forEach((device, index) => {
    const at = `status.devices[${index}]`;
    for (const name of ['driver', 'pool', 'device']) errors.require(device, name, at);
    const key = deviceKey(device);
    if (seen.has(key)) errors.add('duplicate', at, '', identityOf(device));
    else if (!allocated.has(key))
      errors.add('invalid', at, 'must be an allocated device in the claim', identityOf(device));
    seen.add(key);
    validateConditions(errors, `${at}.conditions`, valueAt(device, 'conditions'));
    const data = valueAt(device, 'data');
    if (data !== undefined && !isJsonObject(data))
      errors.add('invalid', `${at}.data`, 'must be a valid JSON object', data);
    else if (data !== undefined && JSON.stringify(data).length > limits.jsonBytes) {
      errors.add('tooLong', `${at}.data`, `may not be more than ${limits.jsonBytes} bytes`);
    }
    validateNetworkData(errors, `${at}.networkData`, valueAt(device, 'networkData'));
  });
}

function identityOf(device: unknown): object {
  return { driver: valueAt(device, 'driver'), pool: valueAt(device, 'pool'), device: valueAt(device, 'device') };
}

function validateConditions(errors: FieldErrors, field: string, conditions: unknown): void {
  errors.atMost(conditions, limits.conditions, field);
  const types = new Set<unknown>();
  list(conditions).forEach((condition, index) => {
    const at = `${field}[${index}]`;
    for (const name of ['type', 'status', 'lastTransitionTime', 'reason']) errors.require(condition, name, at);
    const status = valueAt(condition, 'status');
    if (!['True', 'False', 'Unknown'].includes(String(status)))
      errors.add('unsupported', `${at}.status`, '', status ?? '');
    const reason = valueAt(condition, 'reason');
    if (typeof reason === 'string' && reason !== '' && !/^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$/.test(reason)) {
      errors.add('invalid', `${at}.reason`, 'a condition reason must start with alphabetic character', reason);
    }
    const type = valueAt(condition, 'type');
    if (types.has(type)) errors.add('duplicate', `${at}.type`, '', type);
    types.add(type);
  });
}

function validateNetworkData(errors: FieldErrors, field: string, data: unknown): void {
  if (data === undefined) return;
  for (const name of ['interfaceName', 'hardwareAddress'] as const) {
    const value = valueAt(data, name);
    if (typeof value === 'string' && value.length > limits[name]) {
      errors.add('tooLong', `${field}.${name}`, `may not be more than ${limits[name]} bytes`);
    }
  }
  const ips = list(valueAt(data, 'ips'));
  errors.atMost(ips, limits.ips, `${field}.ips`);
  ips.forEach((ip, index) => {
    if (ips.indexOf(ip) !== index) errors.add('duplicate', `${field}.ips[${index}]`, '', ip);
    else if (!isInterfaceAddress(ip)) {
      errors.add(
        'invalid',
        `${field}.ips[${index}]`,
        'must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)',
        ip,
      );
    }
  });
}

/** An address with its prefix length, both in canonical form. */
function isInterfaceAddress(text: unknown): boolean {
  const [, address = '', prefix = ''] = /^([0-9a-fA-F.:]+)\/(0|[1-9][0-9]*)$/.exec(String(text)) ?? [];
  const family = isIP(address);
  if (family === 4) return Number(prefix) <= 32;
  // The URL parser compresses IPv6 the way RFC 5952 wants it; an IPv4-mapped address is not canonical here.
  return family === 6 && Number(prefix) <= 128 && new URL(`http://[${address}]`).hostname === `[${address}]`;
}
