import { defined } from '../../../lib/defined.ts';
import { printable } from '../../../lib/printable.ts';
import { MetadataError } from '../errors.ts';
import { type AttributeKind, attributeKinds } from './attribute.ts';
import { apiGroup, documentKind, metadataVersions } from './codec.ts';
import type {
  ClaimIdentity,
  DeviceAttribute,
  DeviceAttributes,
  DeviceMetadata,
  MetadataDocument,
  NetworkDeviceData,
} from './document.ts';
import { parseJsonStream } from './json-stream.ts';

/** One metadata object of any version. netdra writes one request into each object; the format allows more. */
export interface DecodedMetadata {
  claim: ClaimIdentity;
  generation: number;
  podClaimName?: string;
  requests: { name: string; devices: DeviceMetadata[] }[];
}

/**
 * Decodes the first object of a stream that has a known version. Like the Go helper 0.37.2, ignores unknown fields and reads
 * absent fields as empty. Requires the rest of the stream to be well-formed, too: in a file that is being overwritten it is
 * not.
 * @throws MetadataError `metadata-malformed` if anything in the stream is not a JSON object, if an object before the first
 * known version lacks version or kind, or if the object of the known version has another kind; `metadata-version-unknown` if no
 * object has a known version
 */
export function decodeMetadata(text: string): DecodedMetadata {
  const objects = parseJsonStream(text);
  if (objects.length === 0) throw new MetadataError('metadata-malformed', 'no metadata objects found in stream');
  const unknown: string[] = [];
  for (const object of objects) {
    const { apiVersion } = object;
    if (typeof apiVersion !== 'string' || apiVersion === '' || typeof object.kind !== 'string') {
      throw new MetadataError('metadata-malformed', 'metadata object without apiVersion or kind');
    }
    if (metadataVersions.some((version) => apiVersion === `${apiGroup}/${version}`)) {
      if (object.kind === documentKind) return decodeObject(object);
      const problem = `kind ${documentKind} expected, ${printable(object.kind, 100)} found`;
      throw new MetadataError('metadata-malformed', `${apiVersion}: ${problem}`);
    }
    unknown.push(apiVersion);
  }
  throw new MetadataError(
    'metadata-version-unknown',
    `no compatible metadata version found in stream (unknown versions: ${unknown.join(', ')})`,
    { hint: `known are ${metadataVersions.map((version) => `${apiGroup}/${version}`).join(' and ')}` },
  );
}

/**
 * Decodes a file with one request, as netdra and the Go helper always write.
 * @throws MetadataError as `decodeMetadata`
 */
export function decodeStream(text: string): MetadataDocument {
  const { requests, ...rest } = decodeMetadata(text);
  const [request, ...others] = requests;
  if (request === undefined || others.length > 0) {
    throw new MetadataError('metadata-malformed', `requests: found ${requests.length} entries instead of one`);
  }
  return { ...rest, request: request.name, devices: request.devices };
}

/** Decodes a file. @returns `undefined` for a missing, blank or damaged file */
export function decodeIfWhole(text: string | undefined): MetadataDocument | undefined {
  try {
    return text === undefined || text.trim() === '' ? undefined : decodeStream(text);
  } catch (error) {
    if (error instanceof MetadataError) return undefined;
    throw error;
  }
}

/** Decodes UTF-8. As in Go, a byte order mark is not white space. @throws MetadataError `metadata-malformed` */
export function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new MetadataError('metadata-malformed', 'it is not UTF-8', { cause });
  }
}

type Decode<T> = (value: unknown, path: string) => T;

/** Returns a decoder that checks the type of a value. @param zero result for an absent or null value, as in Go */
function decoder<T>(expected: string, zero: T, isOfKind: (value: unknown) => boolean): Decode<T> {
  return (value, path) => {
    if (value === undefined || value === null) return zero;
    if (isOfKind(value)) return value as T;
    throw wrongType(path, expected);
  };
}

const record = decoder<Record<string, unknown>>('an object', {}, (value) => {
  return typeof value === 'object' && !Array.isArray(value);
});
const string = decoder<string>('a string', '', (value) => typeof value === 'string');
const bool = decoder<boolean>('true or false', false, (value) => typeof value === 'boolean');
const generation = decoder<number>('a whole number', 0, Number.isSafeInteger);
const int = decoder<number | bigint>('a whole number of 64 bits', 0, (value) => {
  return typeof value === 'bigint' ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value);
});
const scalars = { int, bool, string, version: string };

function decodeObject(object: Record<string, unknown>): DecodedMetadata {
  const metadata = record(object.metadata, 'metadata');
  return {
    claim: {
      name: string(metadata.name, 'metadata.name'),
      namespace: string(metadata.namespace, 'metadata.namespace'),
      uid: string(metadata.uid, 'metadata.uid'),
    },
    generation: generation(metadata.generation, 'metadata.generation'),
    ...defined({ podClaimName: optional(object.podClaimName, 'podClaimName', string) }),
    requests: list(object.requests, 'requests', (value, path) => {
      const request = record(value, path);
      return {
        name: string(request.name, `${path}.name`),
        devices: list(request.devices, `${path}.devices`, decodeDevice),
      };
    }),
  };
}

export function decodeDevice(value: unknown, path: string): DeviceMetadata {
  const device = record(value, path);
  return defined({
    driver: string(device.driver, `${path}.driver`),
    pool: string(device.pool, `${path}.pool`),
    name: string(device.name, `${path}.name`),
    attributes: optional(device.attributes, `${path}.attributes`, decodeAttributes),
    networkData: optional(device.networkData, `${path}.networkData`, decodeNetworkData),
  }) as DeviceMetadata;
}

export function decodeAttributes(value: unknown, path: string): DeviceAttributes {
  return Object.fromEntries(
    Object.entries(record(value, path)).map(([name, each]) => [name, decodeAttribute(each, `${path}[${name}]`)]),
  );
}

function decodeAttribute(value: unknown, path: string): DeviceAttribute {
  const attribute = record(value, path);
  const decoded: Partial<Record<AttributeKind, unknown>> = {};
  for (const kind of attributeKinds) {
    const found = attribute[kind] ?? undefined;
    if (found !== undefined) decoded[kind] = decodeValue(kind, found, `${path}.${kind}`);
  }
  return decoded as DeviceAttribute;
}

function decodeValue(kind: AttributeKind, value: unknown, path: string): unknown {
  if (kind in scalars) return scalars[kind as keyof typeof scalars](value, path);
  return list<unknown>(value, path, scalars[kind.slice(0, -1) as keyof typeof scalars]);
}

function decodeNetworkData(value: unknown, path: string): NetworkDeviceData {
  const data = record(value, path);
  return defined({
    interfaceName: optional(data.interfaceName, `${path}.interfaceName`, string),
    ips: optional(data.ips, `${path}.ips`, (ips, at) => list(ips, at, string)),
    hardwareAddress: optional(data.hardwareAddress, `${path}.hardwareAddress`, string),
  }) as NetworkDeviceData;
}

function optional<T>(value: unknown, path: string, decode: Decode<T>): T | undefined {
  return value === undefined || value === null ? undefined : decode(value, path);
}

/** Decodes a list; absent means empty, as in Go. */
function list<T>(value: unknown, path: string, decode: Decode<T>): T[] {
  if (value === undefined || value === null) return [];
  if (Array.isArray(value)) return value.map((each, index) => decode(each, `${path}[${index}]`));
  throw wrongType(path, 'a list');
}

function wrongType(path: string, expected: string): MetadataError {
  return new MetadataError('metadata-malformed', `${path}: ${expected} expected`);
}
