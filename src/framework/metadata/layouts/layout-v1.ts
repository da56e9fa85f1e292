import { encodeVersions } from '../document/codec.ts';
import type { ClaimName } from '../document/document.ts';
import type { HostFile } from '../files/host-file.ts';
import type { HostDirs, Layout, RequestPlace } from './layout.ts';
import { claimDirName, pathPart } from './paths.ts';

/** Directory in containers with the files of Kubernetes 1.36 and later. */
export const v1ContainerDir = '/var/run/kubernetes.io/dra-device-attributes';
/**
 * Subdirectory with one directory for each extended resource that the container requested, such as `example.com/vf`. An image
 * cannot know the names of the claim and the requests, which the scheduler chooses. Not part of KEP-5304.
 */
export const extendedResourcesDir = 'extended-resources';
export const metadataFileSuffix = '-metadata.json';

/**
 * Layout of Kubernetes 1.36 and later: a stream of the chosen versions, newest first.
 * Source: k8s.io/dynamic-resource-allocation api/metadata, `ContainerDir` and its two sub-directories.
 */
export const v1: Layout = {
  name: 'v1',
  hostFile: (dirs, place) => requestFile(dirs, place, 'metadata.json'),
  containerPaths({ claim, podClaimName, request, driver, extendedResources = [] }) {
    // Only a non-empty annotation makes it a claim from a template, as in the Go helper.
    const claimDir = podClaimName ? `resourceclaimtemplates/${podClaimName}` : `resourceclaims/${claim.name}`;
    const own = `${v1ContainerDir}/${claimDir}/${request}/${driver}${metadataFileSuffix}`;
    return [own, ...extendedResources.map((name) => extendedResourcePath(name, driver))];
  },
  encode: ({ document, versions }) => document && encodeVersions(document, versions),
};

/** Returns the path in a container of the file for an extended resource that the container requested. */
export function extendedResourcePath(name: string, driver: string): string {
  return `${v1ContainerDir}/${extendedResourcesDir}/${name}/${driver}${metadataFileSuffix}`;
}

/** Returns a file in the directory of a request. Source: KEP-5304 "Directory structure on host". */
export function requestFile({ dataDir }: HostDirs, place: RequestPlace, file: string): HostFile {
  const { base, parts } = claimDirectory(dataDir, place.claim);
  return { base, parts: [...parts, pathPart(place.request, 'request'), file] };
}

/** Returns a claim's directory in the driver's own directory. @throws MetadataError `metadata-name-invalid` */
export function claimDirectory(dataDir: string, claim: ClaimName): HostFile {
  return { base: dataDir, parts: [metadataDirName, claimDirName(claim)] };
}

/** Subdirectory of the driver's directory, with a directory for each claim. */
export const metadataDirName = 'dra-device-metadata';
