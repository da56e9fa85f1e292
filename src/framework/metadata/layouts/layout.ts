import { defined } from '../../../lib/defined.ts';
import type { MetadataVersion } from '../document/codec.ts';
import type { DeviceName } from '../document/device-key.ts';
import { baseRequest, type ClaimIdentity, type DeviceAttributes, type MetadataDocument } from '../document/document.ts';
import type { HostFile } from '../files/host-file.ts';
import { pathPart } from './paths.ts';

export const layoutNames = ['v1', 'kep', 'attributes-json', 'downward-api'] as const;
export type LayoutName = (typeof layoutNames)[number];

/** Directories that the drivers of a node share. */
export interface SharedDirs {
  /** Directory for `attributes-json`; containers see the files under the same path. */
  attributesDir: string;
  /** Directory for `downward-api`, with a directory for each pod. */
  downwardApiDir: string;
}

export interface HostDirs extends SharedDirs {
  /** The driver's directory below the kubelet's `plugins`. */
  dataDir: string;
}

/** Directories that the layouts' specifications name. */
export const defaultHostDirs: SharedDirs = {
  attributesDir: '/var/run/dra-device-attributes',
  downwardApiDir: '/etc/dra',
};

/** A request, with all names by which its pod's author may know it. */
interface NamedRequest {
  claim: ClaimIdentity;
  /** Name of the claim in its pod, if it came from a template. */
  podClaimName?: string;
  /** Whether the pod also uses a claim whose own name is `podClaimName`: the name then stands for that claim. */
  hasNamesake?: true;
  request: string;
  driver: string;
  /** Extended resource names (`domain/name`) by which a container may have requested the device, instead of by a claim. */
  extendedResources?: readonly string[];
}

export interface RequestPlace extends NamedRequest {
  /** UID of the first pod for which the claim was prepared. */
  podUid?: string;
}

export interface PublishedDevice extends DeviceName {
  /** Attributes of the device in its ResourceSlice, overridden by those that the driver gave at prepare. */
  attributes: DeviceAttributes;
}

export interface RequestContent extends NamedRequest {
  /** Full reference of the request, `request` or `request/subrequest`. */
  request: string;
  published: readonly PublishedDevice[];
  /** Versions in the layout `v1`, newest first; absent: all. */
  versions?: readonly MetadataVersion[];
  /** Metadata document; absent until the driver has reported the state of the devices. */
  document?: MetadataDocument;
  /** Time of the first document since the last withdrawal, RFC 3339. */
  readySince?: string;
}

/** A layout: the format of the file, and its path in containers. */
export interface Layout {
  readonly name: LayoutName;
  /** Returns the file on the host. @throws MetadataError `metadata-name-invalid` if the names do not fit into a path */
  hostFile(dirs: HostDirs, place: RequestPlace): HostFile;
  /** Returns absolute paths in the container, all of the same host file. */
  containerPaths(place: RequestPlace): string[];
  /** Returns the file's text; `undefined` while there must be no file. */
  encode(content: RequestContent): string | undefined;
}

/**
 * Checks a request's names for all layouts: they come from other components and become parts of paths, on the host and in
 * containers.
 * @throws MetadataError `metadata-name-invalid`
 */
export function placeOf(content: RequestPlace): RequestPlace {
  const { claim, podClaimName, hasNamesake, podUid, request, driver, extendedResources } = content;
  pathPart(claim.namespace, 'claim namespace');
  pathPart(claim.name, 'claim name');
  pathPart(baseRequest(request), 'request');
  pathPart(driver, 'driver name');
  if (podUid !== undefined) pathPart(podUid, 'pod UID');
  // Only a non-empty annotation makes it a claim from a template, as in the Go helper.
  if (podClaimName) pathPart(podClaimName, 'pod claim name');
  for (const part of extendedResources?.flatMap((name) => name.split('/')) ?? []) pathPart(part, 'extended resource');
  const more = defined({ podClaimName, hasNamesake, podUid, extendedResources });
  return { claim, request: baseRequest(request), driver, ...more };
}

/**
 * Returns the names by which a pod's author may know a claim: its own name and, if it came from a template, its name in the
 * pod. Leaves out the name in the pod if another claim of the pod has it as its own name.
 */
export function claimNames({ claim, podClaimName, hasNamesake }: RequestPlace): string[] {
  return [...new Set([claim.name, (hasNamesake ? '' : podClaimName) || claim.name])];
}
