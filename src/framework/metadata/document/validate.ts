import { isIPv4, isIPv6 } from 'node:net';
import { Address6 } from 'ip-address';
import { isObject } from '../../../lib/is-object.ts';
import { MetadataError } from '../errors.ts';
import { type AttributeKind, attributeKinds } from './attribute.ts';
import {
  type ClaimIdentity,
  claimName,
  type DeviceAttribute,
  type DeviceMetadata,
  type NetworkDeviceData,
} from './document.ts';

/**
 * Limits of metadata.resource.k8s.io/v1beta1, which strict consumers check. Lengths are in bytes. Source:
 * k8s.io/dynamic-resource-allocation 0.37.2, api/metadata/v1beta1, and k8s.io/api/resource/v1 `DeviceAttribute`. Unlike a
 * ResourceSlice, v1beta1 limits neither the names of attributes nor single values.
 */
export const limits = {
  attributes: 32,
  listValue: 64,
  driver: 63,
  pool: 253,
  deviceName: 63,
  interfaceName: 256,
  ips: 16,
  hardwareAddress: 128,
} as const;

const label = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
const driverName = new RegExp(`^${label}(\\.${label})*$`, 'i');
const poolName = new RegExp(`^${label}(\\.${label})*(/${label}(\\.${label})*)*$`);
const deviceName = new RegExp(`^${label}$`);
/**
 * Checks the devices that a driver reports for a request, before anything is written.
 * @throws MetadataError `metadata-invalid` naming claim, request, device, and the attribute or field
 */
export function validateDevices(claim: ClaimIdentity, request: string, devices: readonly DeviceMetadata[]): void {
  for (const device of devices) {
    const problem = deviceProblem(device);
    if (problem === undefined) continue;
    const subject = claimName(claim);
    const message = `claim ${subject}, request ${request}, device ${device.pool}/${device.name}: ${problem}`;
    throw new MetadataError('metadata-invalid', message, { claim: subject, device: device.name });
  }
}

function deviceProblem(device: DeviceMetadata): string | undefined {
  return (
    nameProblem('driver', device.driver, driverName, limits.driver) ??
    nameProblem('pool', device.pool, poolName, limits.pool) ??
    nameProblem('name', device.name, deviceName, limits.deviceName) ??
    attributesProblem(device.attributes ?? {}) ??
    (device.networkData === undefined ? undefined : networkDataProblem(device.networkData))
  );
}

function nameProblem(field: string, name: unknown, pattern: RegExp, maxBytes: number): string | undefined {
  if (typeof name === 'string' && pattern.test(name) && name.length <= maxBytes) return undefined;
  const kind = pattern.ignoreCase ? 'DNS name' : 'lower-case DNS name';
  return `${field} ${JSON.stringify(name)} is not a ${kind} of at most ${maxBytes} bytes`;
}

function attributesProblem(attributes: Record<string, DeviceAttribute>): string | undefined {
  const entries = Object.entries(attributes);
  if (entries.length > limits.attributes)
    return `has ${entries.length} attributes, but at most ${limits.attributes} are allowed`;
  for (const [name, attribute] of entries) {
    const problem = textProblem('its name', name) ?? attributeProblem(attribute);
    if (problem !== undefined) return `attribute ${JSON.stringify(name)}: ${problem}`;
  }
  return undefined;
}

function attributeProblem(attribute: DeviceAttribute): string | undefined {
  const kinds = Object.keys(attribute ?? {}) as AttributeKind[];
  const set = kinds.filter((kind) => attribute[kind] !== undefined);
  const kind = set[0];
  if (kind === undefined || set.length > 1 || !attributeKinds.includes(kind)) {
    return `needs exactly one of ${attributeKinds.join(', ')}, but has ${set.join(', ') || 'none'}`;
  }
  const value: unknown = attribute[kind];
  if (!kind.endsWith('s')) return valueProblem(kind, value);
  if (!Array.isArray(value) || value.length === 0) return `${kind} needs a list of at least one value`;
  const problems = value.map((each) => valueProblem(kind.slice(0, -1), each, limits.listValue));
  return problems.find((problem) => problem !== undefined);
}

function valueProblem(kind: string, value: unknown, maxBytes?: number): string | undefined {
  if (kind === 'bool') return typeof value === 'boolean' ? undefined : 'bool must be true or false';
  return kind === 'int' ? intProblem(value) : textProblem(kind, value, maxBytes);
}

function intProblem(value: unknown): string | undefined {
  if (Number.isSafeInteger(value)) return undefined;
  if (typeof value === 'bigint') {
    return BigInt.asIntN(64, value) === value ? undefined : `int ${value} does not fit into 64 bits`;
  }
  return Number.isInteger(value)
    ? `int ${value} is beyond 2^53 - 1, where a number is not exact any more: give a bigint`
    : `int needs a whole number, not ${value}`;
}

function networkDataProblem(data: NetworkDeviceData): string | undefined {
  if (!isObject(data) || !Array.isArray(data.ips ?? [])) return 'networkData needs an object with a list of ips';
  const { interfaceName = '', ips = [], hardwareAddress = '' } = data;
  if (ips.length > limits.ips)
    return `networkData.ips: has ${ips.length} addresses, but at most ${limits.ips} are allowed`;
  if (new Set(ips).size < ips.length) return 'networkData.ips: an address is repeated';
  const wrong = ips.find((ip) => !isCanonicalInterfaceAddress(ip));
  if (wrong !== undefined) {
    return `networkData.ips: ${JSON.stringify(wrong)} is not a canonical address with prefix length, like 192.0.2.7/24`;
  }
  return (
    textProblem('networkData.interfaceName', interfaceName, limits.interfaceName) ??
    textProblem('networkData.hardwareAddress', hardwareAddress, limits.hardwareAddress)
  );
}

function textProblem(field: string, text: unknown, maxBytes = Number.POSITIVE_INFINITY): string | undefined {
  if (typeof text !== 'string' || !text.isWellFormed()) return `${field} needs well-formed text`;
  const bytes = Buffer.byteLength(text);
  return bytes > maxBytes ? `${field} has ${bytes} bytes, but at most ${maxBytes} are allowed` : undefined;
}

/**
 * Returns whether the API server accepts an interface address in this form: host bits may be set; no leading zeros; IPv6 as RFC
 * 5952 writes it.
 */
function isCanonicalInterfaceAddress(text: unknown): boolean {
  if (typeof text !== 'string') return false;
  const [address = '', prefix = '', ...more] = text.split('/');
  if (more.length > 0 || !/^(0|[1-9]\d{0,2})$/.test(prefix)) return false;
  if (isIPv4(address)) return Number(prefix) <= 32;
  if (!isIPv6(address) || Number(prefix) > 128 || address.includes('%')) return false;
  const parsed = new Address6(address);
  return !parsed.isMapped4() && parsed.correctForm() === address;
}
