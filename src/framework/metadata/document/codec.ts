import { defined } from '../../../lib/defined.ts';
import { attributeKinds, sortedAttributes } from './attribute.ts';
import type { DecodedMetadata } from './decode.ts';
import type { DeviceAttribute, DeviceMetadata, MetadataDocument, NetworkDeviceData } from './document.ts';
import { formatGoJson } from './json-stream.ts';

export const apiGroup = 'metadata.resource.k8s.io';
export const documentKind = 'DeviceMetadata';

/**
 * Versions of metadata.resource.k8s.io that the framework writes and reads, newest first. Their fields are the same (Kubernetes
 * 1.37).
 */
export const metadataVersions = ['v1beta1', 'v1alpha1'] as const;
export type MetadataVersion = (typeof metadataVersions)[number];

/**
 * Formats network data with the field names of resource.k8s.io/v1, in the Go helper's order. Leaves out empty fields, like
 * `omitempty`.
 */
export const formatNetworkData = ({
  interfaceName,
  ips,
  hardwareAddress,
}: NetworkDeviceData): Record<string, unknown> =>
  defined({
    interfaceName: interfaceName || undefined,
    ips: ips?.length ? ips : undefined,
    hardwareAddress: hardwareAddress || undefined,
  });

/**
 * Encodes the document as a stream of the given versions, by default all, in their order. Serializes the document only once,
 * since all versions have the same fields.
 */
export function encodeVersions(
  document: MetadataDocument | DecodedMetadata,
  versions: readonly MetadataVersion[] = metadataVersions,
): string {
  const [first = metadataVersions[0], ...others] = versions;
  const text = encodeObject(document, first);
  // The API version precedes all text from other sources, so that its first occurrence is the real one.
  return [text, ...others.map((version) => text.replace(`${apiGroup}/${first}`, `${apiGroup}/${version}`))].join('');
}

/**
 * Encodes the document as one versioned JSON object and a line feed, with the same bytes as the Go helper. `generation` comes
 * before the long parts: if a reader sees a half-written file, the newer generation is in it.
 */
export function encodeObject(document: MetadataDocument | DecodedMetadata, version: MetadataVersion): string {
  const { name, namespace, uid } = document.claim;
  const requests = 'requests' in document ? document.requests : [{ name: document.request, devices: document.devices }];
  return `${formatGoJson(
    defined({
      kind: documentKind,
      apiVersion: `${apiGroup}/${version}`,
      metadata: { name, namespace, uid, generation: document.generation },
      podClaimName: document.podClaimName,
      requests: requests.map(({ name: request, devices }) =>
        defined({ name: request, devices: devices.length === 0 ? undefined : devices.map(formatDevice) }),
      ),
    }),
  )}\n`;
}

function formatDevice(device: DeviceMetadata): Record<string, unknown> {
  const sorted = sortedAttributes(device.attributes ?? {});
  const attributes = sorted.map((entry) => [entry[0], formatAttribute(entry[1])]);
  return defined({
    driver: device.driver,
    pool: device.pool,
    name: device.name,
    attributes: attributes.length === 0 ? undefined : Object.fromEntries(attributes),
    networkData: device.networkData && formatNetworkData(device.networkData),
  });
}

/** Formats an attribute; its kinds are in Go's order. */
function formatAttribute(attribute: DeviceAttribute): Record<string, unknown> {
  const value: Record<string, unknown> = {};
  // An iterator would create an object for each kind of each attribute.
  attributeKinds.forEach((kind) => {
    if (attribute[kind] !== undefined) value[kind] = attribute[kind];
  });
  return value;
}
