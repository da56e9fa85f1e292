import type { DeviceKey } from './device-key.ts';

/**
 * One attribute value: exactly one member is set. Shape of resource.k8s.io/v1 `DeviceAttribute`, including lists. Integers have
 * 64 bits in the API: they are a `number` up to 2^53 - 1 in absolute value, and a `bigint` beyond.
 */
export interface DeviceAttribute {
  int?: number | bigint;
  bool?: boolean;
  string?: string;
  version?: string;
  ints?: (number | bigint)[];
  bools?: boolean[];
  strings?: string[];
  versions?: string[];
}

/** Attributes by name: `id`, or `domain/id` for well-known ones such as `resource.kubernetes.io/pciBusID`. */
export type DeviceAttributes = Record<string, DeviceAttribute>;

/** Network data of a device. Shape of resource.k8s.io/v1 `NetworkDeviceData`. */
export interface NetworkDeviceData {
  interfaceName?: string;
  /** Interface addresses with prefix length, canonical: `10.9.8.7/24`, `2001:db8::1/64`. At most 16. */
  ips?: string[];
  /** MAC address, lower case with colons. */
  hardwareAddress?: string;
}

/** Metadata of one device of a request, as a container gets it. Without the share ID, for which KEP-5304 has no field. */
export interface DeviceMetadata extends DeviceKey {
  attributes?: DeviceAttributes;
  networkData?: NetworkDeviceData;
}

/** Name of a claim in the API server. */
export interface ClaimName {
  namespace: string;
  name: string;
}

/** Identity of a claim; the UID distinguishes successive claims of the same name. */
export interface ClaimIdentity extends ClaimName {
  uid: string;
}

/** Returns a claim's name for messages. */
export function claimName({ namespace, name }: ClaimName): string {
  return `${namespace}/${name}`;
}

/**
 * One metadata document: the devices of one request of one claim, from one driver. Independent of versions; layouts encode it.
 * Source: KEP-5304, "Metadata file schema".
 */
export interface MetadataDocument {
  claim: ClaimIdentity;
  /** Generation of the document: 1 for the first write, incremented with every change, never decremented. */
  generation: number;
  /** Name of the claim in its pod, if it came from a template: annotation `resource.kubernetes.io/pod-claim-name`. */
  podClaimName?: string;
  /** Full reference to the request, `request` or `request/subrequest`. */
  request: string;
  devices: DeviceMetadata[];
}

/**
 * Returns the base name of a request: the part of `request/subrequest` before the slash, which paths, CDI names and the kubelet
 * use.
 */
export function baseRequest(request: string): string {
  return request.split('/', 1)[0] ?? request;
}
