import type { DeviceAttribute, DeviceMetadata, MetadataDocument, NetworkDeviceData } from './document.ts';
import { MetadataError } from './errors.ts';
import { formatGoJson, parseJsonStream } from './json-stream.ts';

const apiGroup = 'metadata.resource.k8s.io';
const kind = 'DeviceMetadata';

/** The versions that we write and read, newest first. Their fields are the same (Kubernetes 1.37). */
export const metadataVersions = ['v1beta1', 'v1alpha1'] as const;
export type MetadataVersion = (typeof metadataVersions)[number];

/** How one network device is written; the `kep` layout adds the names that the KEP's own examples read. */
export type FormatNetworkData = (data: NetworkDeviceData) => Record<string, unknown>;

/** The field names of resource.k8s.io/v1, in the Go helper's order; absent stays absent. */
export const formatNetworkData: FormatNetworkData = (data) =>
  definedOnly({ interfaceName: data.interfaceName, ips: data.ips, hardwareAddress: data.hardwareAddress });

/**
 * The document as one versioned JSON object, followed by a line feed. Key order is that of the Go helper, except that
 * `generation` comes before the long parts there anyway: a torn read shows the newer one first.
 */
export function encodeObject(
  document: MetadataDocument,
  version: MetadataVersion,
  networkData: FormatNetworkData = formatNetworkData,
): string {
  const { name, namespace, uid } = document.claim;
  return `${formatGoJson(
    definedOnly({
      kind,
      apiVersion: `${apiGroup}/${version}`,
      metadata: { name, namespace, uid, generation: document.generation },
      podClaimName: document.podClaimName,
      requests: [
        { name: document.request, devices: document.devices.map((device) => formatDevice(device, networkData)) },
      ],
    }),
  )}\n`;
}

function formatDevice(device: DeviceMetadata, networkData: FormatNetworkData): Record<string, unknown> {
  const { attributes } = device;
  const names = Object.keys(attributes ?? {}).sort();
  return definedOnly({
    driver: device.driver,
    pool: device.pool,
    name: device.name,
    attributes: names.length === 0 ? undefined : Object.fromEntries(names.map((name) => [name, attributes?.[name]])),
    networkData: device.networkData === undefined ? undefined : networkData(device.networkData),
  });
}

/**
 * Decodes the first object of a stream whose version is known.
 * @throws MetadataError `metadata-malformed` for anything that is not a DeviceMetadata object, even behind a good one's
 * unknown predecessor; `metadata-version-unknown` when every object has another version
 */
export function decodeStream(text: string): MetadataDocument {
  const objects = parseJsonStream(text);
  if (objects.length === 0) throw new MetadataError('metadata-malformed', 'no metadata objects found in stream');
  const unknown: string[] = [];
  for (const object of objects) {
    const { apiVersion } = object;
    if (typeof apiVersion !== 'string' || typeof object.kind !== 'string') {
      throw new MetadataError('metadata-malformed', 'metadata object without apiVersion or kind');
    }
    if (object.kind === kind && metadataVersions.some((version) => apiVersion === `${apiGroup}/${version}`)) {
      return decodeObject(object);
    }
    unknown.push(apiVersion);
  }
  throw new MetadataError(
    'metadata-version-unknown',
    `no compatible metadata version found in stream (unknown versions: ${unknown.join(', ')})`,
  );
}

function decodeObject(object: Record<string, unknown>): MetadataDocument {
  const metadata = record(object.metadata, 'metadata');
  const requests = array(object.requests, 'requests');
  if (requests.length !== 1) {
    throw new MetadataError('metadata-malformed', `requests: one expected, ${requests.length} found`);
  }
  const request = record(requests[0], 'requests[0]');
  const podClaimName = optional(object.podClaimName, 'podClaimName', string);
  return {
    claim: {
      name: string(metadata.name, 'metadata.name'),
      namespace: string(metadata.namespace, 'metadata.namespace'),
      uid: string(metadata.uid, 'metadata.uid'),
    },
    generation: number(metadata.generation, 'metadata.generation'),
    ...(podClaimName === undefined ? {} : { podClaimName }),
    request: string(request.name, 'requests[0].name'),
    devices: (optional(request.devices, 'requests[0].devices', array) ?? []).map((device, index) =>
      decodeDevice(device, `requests[0].devices[${index}]`),
    ),
  };
}

function decodeDevice(value: unknown, path: string): DeviceMetadata {
  const device = record(value, path);
  const attributes = optional(device.attributes, `${path}.attributes`, record) as
    | Record<string, DeviceAttribute>
    | undefined;
  const network = optional(device.networkData, `${path}.networkData`, record);
  return definedOnly({
    driver: string(device.driver, `${path}.driver`),
    pool: string(device.pool, `${path}.pool`),
    name: string(device.name, `${path}.name`),
    attributes,
    networkData: network === undefined ? undefined : decodeNetworkData(network, `${path}.networkData`),
  }) as unknown as DeviceMetadata;
}

function decodeNetworkData(data: Record<string, unknown>, path: string): NetworkDeviceData {
  return definedOnly({
    interfaceName: optional(data.interfaceName, `${path}.interfaceName`, string),
    ips: optional(data.ips, `${path}.ips`, array)?.map((ip, index) => string(ip, `${path}.ips[${index}]`)),
    hardwareAddress: optional(data.hardwareAddress, `${path}.hardwareAddress`, string),
  }) as NetworkDeviceData;
}

function definedOnly(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

function optional<T>(value: unknown, path: string, decode: (value: unknown, path: string) => T): T | undefined {
  return value === undefined || value === null ? undefined : decode(value, path);
}

function record(value: unknown, path: string): Record<string, unknown> {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  throw wrongType(path, 'an object');
}

function array(value: unknown, path: string): unknown[] {
  if (Array.isArray(value)) return value;
  throw wrongType(path, 'a list');
}

function string(value: unknown, path: string): string {
  if (typeof value === 'string') return value;
  throw wrongType(path, 'a string');
}

function number(value: unknown, path: string): number {
  if (typeof value === 'number') return value;
  throw wrongType(path, 'a number');
}

function wrongType(path: string, expected: string): MetadataError {
  return new MetadataError('metadata-malformed', `${path}: ${expected} expected`);
}
