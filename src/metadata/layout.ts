import { encodeObject, formatNetworkData, metadataVersions } from './codec.ts';
import { baseRequest, type ClaimIdentity, type MetadataDocument, type NetworkDeviceData } from './document.ts';

/** What decides the places of a request's file. */
export interface RequestPlace {
  claim: ClaimIdentity;
  podClaimName?: string;
  /** Base name of the request. */
  request: string;
  driver: string;
}

/** One dialect of the file: how it is written and where containers find it. */
export interface Layout {
  readonly name: LayoutName;
  /** Name of the host file inside the request's directory. */
  readonly fileName: string;
  encode(document: MetadataDocument): string;
  /** Absolute paths inside the container; all show the same host file. */
  containerPaths(place: RequestPlace): string[];
}

export const layoutNames = ['v1', 'kep'] as const;
export type LayoutName = (typeof layoutNames)[number];

/**
 * Kubernetes 1.36 and later: a stream of all versions, newest first.
 * Source: k8s.io/dynamic-resource-allocation api/metadata, `ContainerDir` and its two sub-directories.
 */
const v1: Layout = {
  name: 'v1',
  fileName: 'metadata.json',
  encode: (document) => metadataVersions.map((version) => encodeObject(document, version)).join(''),
  containerPaths({ claim, podClaimName, request, driver }) {
    // An annotation that is there but empty does not make a template claim of it (the Go helper's rule).
    const claimDir = podClaimName ? `resourceclaimtemplates/${podClaimName}` : `resourceclaims/${claim.name}`;
    return [`/var/run/kubernetes.io/dra-device-attributes/${claimDir}/${request}/${driver}-metadata.json`];
  },
};

/**
 * The text of KEP-5304: one v1alpha1 object. Its type has the API's field names, its examples read `addresses` and
 * `hwAddress`; both are written. The pod author of a template claim cannot know the claim's generated name, so the file
 * is there under the pod's own name for it, too.
 */
const kep: Layout = {
  name: 'kep',
  fileName: 'metadata-kep.json',
  encode: (document) => encodeObject(document, 'v1alpha1', formatKepNetworkData),
  containerPaths({ claim, podClaimName, request, driver }) {
    const names = new Set([claim.name, podClaimName || claim.name]);
    return [...names].map((name) => `/var/run/dra-device-attributes/${name}/${request}/${driver}-metadata.json`);
  },
};

function formatKepNetworkData(data: NetworkDeviceData): Record<string, unknown> {
  return {
    ...formatNetworkData(data),
    ...(data.ips === undefined ? {} : { addresses: data.ips }),
    ...(data.hardwareAddress === undefined ? {} : { hwAddress: data.hardwareAddress }),
  };
}

export const layouts: Readonly<Record<LayoutName, Layout>> = { v1, kep };

/** The place of a document's file. */
export function placeOf(document: MetadataDocument, driver: string): RequestPlace {
  return {
    claim: document.claim,
    ...(document.podClaimName === undefined ? {} : { podClaimName: document.podClaimName }),
    request: baseRequest(document.request),
    driver,
  };
}
