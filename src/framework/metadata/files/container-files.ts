import { encodeVersions } from '../document/codec.ts';
import type { HostDirs } from '../layouts/layout.ts';
import { claimDirectory, extendedResourcePath } from '../layouts/layout-v1.ts';
import { fileName, pathPart } from '../layouts/paths.ts';
import type { ClaimState, RequestState } from './claim-state.ts';
import type { HostFile } from './host-file.ts';

/**
 * File of a container that has several requests for one extended resource: one document with all of them, under the name of the
 * resource. The driver adds its mounts over NRI, since CDI edits apply to a request and not to a container. Only the layout
 * `v1` has files under resource names.
 */
export interface ContainerFile {
  container: string;
  /** Base names of the requests, in the order of the claim. */
  requests: string[];
  file: HostFile;
  /** Absolute paths inside the container. */
  containerPaths: string[];
}

/**
 * Returns the files of a claim's containers that have several requests for one resource. @throws MetadataError
 * `metadata-name-invalid`
 */
export function containerFilesOf(state: ClaimState, { dataDir }: HostDirs, driver: string): ContainerFile[] {
  if (!state.layouts.includes('v1')) return [];
  const uses = Object.entries(state.requests).flatMap(([base, { sharers = [], extendedResources: names = [] }]) =>
    names.slice(0, 1).flatMap((resource) => sharers.map((container) => ({ base, container, resource }))),
  );
  const groups = Map.groupBy(uses, ({ container, resource }) => `${container} ${resource}`);
  // Requests that another driver serves are not in the record.
  return [...groups.values()].flatMap(([first, ...others]) => {
    if (first === undefined || others.length === 0) return [];
    const { base, container } = first;
    const { base: dir, parts } = claimDirectory(dataDir, state.claim);
    // Unique, since no request's name contains a `+`.
    const name = fileName(`${pathPart(container, 'container')}+${pathPart(base, 'request')}`, container);
    const { extendedResources = [] } = state.requests[base] as RequestState;
    return {
      container,
      requests: [base, ...others.map((other) => other.base)],
      file: { base: dir, parts: [...parts, name, 'metadata.json'] },
      containerPaths: extendedResources.map((resource) => extendedResourcePath(resource, driver)),
    };
  });
}

/**
 * Returns the text of such a file.
 * @returns an empty text while its container waits at the gate; `undefined` while there must be no file
 */
export function encodeContainerFile(state: ClaimState, { requests: bases }: ContainerFile): string | undefined {
  const requests = bases.map((base) => state.requests[base] as RequestState);
  const { claim, podClaimName, versions } = state;
  const written = requests.flatMap(({ name, content }) =>
    content === undefined ? [] : [{ name, devices: content.devices }],
  );
  if (written.length < requests.length) return requests.some(({ isGated }) => isGated) ? '' : undefined;
  // This sum grows with each request's generation, and is 1 when all of them are.
  const generation = requests.reduce((sum, request) => sum + request.generation, 1 - requests.length);
  const names = { claim, generation, ...(podClaimName !== undefined && { podClaimName }) };
  return encodeVersions({ ...names, requests: written }, versions);
}
