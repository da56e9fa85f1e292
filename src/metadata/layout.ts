import { baseRequest, type ClaimIdentity, type DeviceAttributes, type MetadataDocument } from './document.ts';
import type { HostFile } from './host-file.ts';
import { pathPart } from './paths.ts';

export const layoutNames = ['v1', 'kep', 'attributes-json', 'downward-api'] as const;
export type LayoutName = (typeof layoutNames)[number];

/** Directories on the host under which layouts put their files. */
export interface HostDirs {
  /** The driver's directory below the kubelet's `plugins`. */
  dataDir: string;
  /** For `attributes-json`; containers see the files under the same path. */
  attributesDir: string;
  /** For `downward-api`: a directory for each pod in it. */
  downwardApiDir: string;
}

/** The directories that the texts of the layouts name. */
export const defaultHostDirs: Omit<HostDirs, 'dataDir'> = {
  attributesDir: '/var/run/dra-device-attributes',
  downwardApiDir: '/etc/dra',
};

/** What decides the places of a request's file. */
export interface RequestPlace {
  claim: ClaimIdentity;
  /** The pod's name for it if it came from a template. */
  podClaimName?: string;
  /** UID of the pod for which the claim was prepared first. */
  podUid?: string;
  /** Base name of the request. */
  request: string;
  driver: string;
}

/** A device of a prepared request, as it was known then. */
export interface PublishedDevice {
  pool: string;
  name: string;
  /** What its ResourceSlice says, and above it what the driver said at prepare. */
  attributes: DeviceAttributes;
}

/** All that is known of a request of a prepared claim. */
export interface RequestContent {
  claim: ClaimIdentity;
  podClaimName?: string;
  /** The full reference, `request` or `request/subrequest`. */
  request: string;
  driver: string;
  published: readonly PublishedDevice[];
  /** Absent until the driver has said what the devices are like. */
  document?: MetadataDocument;
  /** RFC 3339: since when there has been a document. */
  readySince?: string;
}

/** One dialect of the file: how it is written and where containers find it. */
export interface Layout {
  readonly name: LayoutName;
  /** @throws MetadataError `metadata-name-invalid` if the place cannot be a path of this layout */
  hostFile(dirs: HostDirs, place: RequestPlace): HostFile;
  /** Absolute paths inside the container; all show the same host file. */
  containerPaths(place: RequestPlace): string[];
  /** The file's text; `undefined` while there is to be no file. */
  encode(content: RequestContent): string | undefined;
}

/**
 * The place of a request's files, checked for all layouts: names of others become parts of paths, on the host and in
 * containers.
 * @throws MetadataError `metadata-name-invalid`
 */
export function placeOf(content: Omit<RequestContent, 'published'> & { podUid?: string }): RequestPlace {
  const { claim, podClaimName, podUid, request, driver } = content;
  pathPart(claim.namespace, 'claim namespace');
  pathPart(claim.name, 'claim name');
  pathPart(baseRequest(request), 'request');
  pathPart(driver, 'driver name');
  if (podUid !== undefined) pathPart(podUid, 'pod UID');
  // An annotation that is there but empty does not make a template claim of it (the Go helper's rule).
  if (podClaimName) pathPart(podClaimName, 'pod claim name');
  return {
    claim,
    ...(podClaimName === undefined ? {} : { podClaimName }),
    ...(podUid === undefined ? {} : { podUid }),
    request: baseRequest(request),
    driver,
  };
}

/**
 * The names under which a pod's author may know a claim: its own, and for a template claim, whose name is generated, the
 * pod's name for it.
 */
export function claimNames({ claim, podClaimName }: RequestPlace): string[] {
  return [...new Set([claim.name, podClaimName || claim.name])];
}
