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
  /** For `attributes-json`; containers see the files under the same path. */
  attributesDir: string;
  /** For `downward-api`, with a directory for each pod in it. */
  downwardApiDir: string;
}

export interface HostDirs extends SharedDirs {
  /** The driver's directory below the kubelet's `plugins`. */
  dataDir: string;
}

/** The directories that the layouts' specifications name. */
export const defaultHostDirs: SharedDirs = {
  attributesDir: '/var/run/dra-device-attributes',
  downwardApiDir: '/etc/dra',
};

/** A request, with all names that its pod's author may know it by. */
interface NamedRequest {
  claim: ClaimIdentity;
  /** The pod's name for it if it came from a template. */
  podClaimName?: string;
  request: string;
  driver: string;
  /** Names by which its container may have asked for it instead of by a claim: a domain and a name, with a slash between. */
  extendedResources?: readonly string[];
}

export interface RequestPlace extends NamedRequest {
  /** UID of the pod for which the claim was prepared first. */
  podUid?: string;
}

export interface PublishedDevice extends DeviceName {
  /** Those of its ResourceSlice, overridden by those that the driver gave at prepare. */
  attributes: DeviceAttributes;
}

export interface RequestContent extends NamedRequest {
  /** The full reference, `request` or `request/subrequest`. */
  request: string;
  published: readonly PublishedDevice[];
  /** For the layout `v1`, newest first; absent: all. */
  versions?: readonly MetadataVersion[];
  /** Absent until the driver has reported the state of the devices. */
  document?: MetadataDocument;
  /** RFC 3339: since when there has been a document. */
  readySince?: string;
}

/** One layout of the file: its format, and where containers find it. */
export interface Layout {
  readonly name: LayoutName;
  /** @throws MetadataError `metadata-name-invalid` if the place cannot be a path of this layout */
  hostFile(dirs: HostDirs, place: RequestPlace): HostFile;
  /** Absolute paths inside the container; all show the same host file. */
  containerPaths(place: RequestPlace): string[];
  /** The file's text; `undefined` while there must be no file. */
  encode(content: RequestContent): string | undefined;
}

/**
 * The place of a request's files, checked for all layouts: names from others become parts of paths, on the host and in
 * containers.
 * @throws MetadataError `metadata-name-invalid`
 */
export function placeOf(content: RequestPlace): RequestPlace {
  const { claim, podClaimName, podUid, request, driver, extendedResources } = content;
  pathPart(claim.namespace, 'claim namespace');
  pathPart(claim.name, 'claim name');
  pathPart(baseRequest(request), 'request');
  pathPart(driver, 'driver name');
  if (podUid !== undefined) pathPart(podUid, 'pod UID');
  // An empty annotation does not make it a template claim (the Go helper's rule).
  if (podClaimName) pathPart(podClaimName, 'pod claim name');
  for (const part of extendedResources?.flatMap((name) => name.split('/')) ?? []) pathPart(part, 'extended resource');
  return { claim, request: baseRequest(request), driver, ...defined({ podClaimName, podUid, extendedResources }) };
}

/**
 * The names by which a pod's author may know a claim: its own, and for a template claim, whose name is generated, the
 * pod's name for it.
 */
export function claimNames({ claim, podClaimName }: RequestPlace): string[] {
  return [...new Set([claim.name, podClaimName || claim.name])];
}
