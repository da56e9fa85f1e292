import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '../../../lib/defined.ts';
import { errnoCode } from '../../../lib/errors.ts';
import { baseRequest, type ClaimIdentity, type DeviceMetadata } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { kepContainerDir } from '../layouts/layout-kep.ts';
import { extendedResourcesDir, metadataFileSuffix, v1ContainerDir } from '../layouts/layout-v1.ts';
import { pathPart } from '../layouts/paths.ts';
import { readMetadata } from './reader.ts';

/** Names of a request. `request` is its name in the claim; for a subrequest, the part before the slash. */
export type RequestQuery = (
  | /** `metadata.name` of a claim that the pod names. */ { claim: string; request: string }
  | /** `spec.resourceClaims[].name` of the pod, for a claim from a template. */ { podClaim: string; request: string }
  | /** Name in the container's `resources.limits`, for drivers built with netdra's framework. */ {
      extendedResource: string;
    }
) & {
  /** Restricts the data to this driver; default: all drivers. */
  driver?: string;
};

export interface ReaderOptions {
  /** The container's root directory as the reader sees it. Default: `/`. */
  root?: string;
}

export interface RequestMetadata {
  claim: ClaimIdentity;
  podClaimName?: string;
  /** Full reference, `request` or `request/subrequest`. */
  request: string;
  devices: DeviceMetadata[];
  /** Source files, one for each driver. */
  files: { path: string; driver: string; generation: number }[];
}

/**
 * Reads a container's metadata of a request: the files of the layout `v1`, and the files of `kep` for drivers without `v1`
 * files. Devices are sorted by driver name.
 * @throws MetadataError with the path: `metadata-not-found` if there is no file, or if a file is empty; `metadata-malformed` if
 * files belong to two claims; and the errors of `readMetadata`
 */
export async function readRequestMetadata(query: RequestQuery, options: ReaderOptions = {}): Promise<RequestMetadata> {
  const { root = '/' } = options;
  const dirs = requestDirs(query, root);
  const paths = new Map<string, string>();
  for (const dir of dirs) {
    for (const driver of await listDrivers(dir)) {
      if (!paths.has(driver)) paths.set(driver, join(dir, `${driver}${metadataFileSuffix}`));
    }
  }
  const drivers = [...paths.keys()].filter((driver) => query.driver === undefined || driver === query.driver).sort();
  if (drivers.length === 0) throw notFound(query, dirs, [...paths.keys()]);
  const base = 'request' in query ? baseRequest(query.request) : undefined;
  const found = await Promise.all(drivers.map((driver) => readFile(paths.get(driver) as string, driver, base)));
  // In `kep`, a claim whose own name is the queried one has the same path as a claim from a template.
  const isOther = (path: string) => path.startsWith(join(root, kepContainerDir));
  const files =
    'podClaim' in query
      ? found.filter(({ podClaimName, files: [file] }) => podClaimName === query.podClaim || !isOther(file?.path ?? ''))
      : found;
  if (files.length === 0) throw notFound(query, dirs, []);
  return merge(files);
}

/**
 * Lists all requests that have files in the container, in the layouts `v1` and `kep`, even if the files are empty. A claim from
 * a template with files in both layouts is listed twice: under its name in the pod, and under its own.
 * @throws MetadataError `metadata-io`
 */
export async function listRequests(options: ReaderOptions = {}): Promise<RequestQuery[]> {
  const root = options.root ?? '/';
  const claims = await listClaimDir(join(root, v1ContainerDir, 'resourceclaims'));
  const templates = await listClaimDir(join(root, v1ContainerDir, 'resourceclaimtemplates'));
  const isListed = ([name, request]: [string, string]) =>
    [...claims, ...templates].some((known) => known[0] === name && known[1] === request);
  const others = (await listClaimDir(join(root, kepContainerDir))).filter((entry) => !isListed(entry));
  return [
    ...[...claims, ...others].map(([claim, request]) => ({ claim, request })),
    ...templates.map(([podClaim, request]) => ({ podClaim, request })),
  ];
}

/** Returns the names of claim and request for each directory with metadata files. */
async function listClaimDir(dir: string): Promise<[string, string][]> {
  const found: [string, string][] = [];
  for (const claim of await listNames(dir)) {
    for (const request of await listNames(join(dir, claim))) {
      if ((await listDrivers(join(dir, claim, request))).length > 0) found.push([claim, request]);
    }
  }
  return found;
}

function requestDirs(query: RequestQuery, root: string): string[] {
  if ('extendedResource' in query) {
    const parts = query.extendedResource.split('/').map((part) => pathPart(part, 'extended resource'));
    return [join(root, v1ContainerDir, extendedResourcesDir, ...parts)];
  }
  const request = pathPart(baseRequest(query.request), 'request');
  const [kind, name] =
    'claim' in query
      ? ['resourceclaims', pathPart(query.claim, 'claim name')]
      : ['resourceclaimtemplates', pathPart(query.podClaim, 'pod claim name')];
  return [join(root, v1ContainerDir, kind, name, request), join(root, kepContainerDir, name, request)];
}

async function listDrivers(dir: string): Promise<string[]> {
  const names = await listNames(dir);
  return names.flatMap((name) =>
    name.endsWith(metadataFileSuffix) ? [name.slice(0, -metadataFileSuffix.length)] : [],
  );
}

/** Returns sorted names; empty if the path does not exist or is not a directory. */
async function listNames(dir: string): Promise<string[]> {
  try {
    return (await readdir(dir)).sort();
  } catch (cause) {
    if (['ENOENT', 'ENOTDIR'].includes(errnoCode(cause) ?? '')) return [];
    throw new MetadataError('metadata-io', `cannot list ${dir}`, { cause, path: dir, retriable: true });
  }
}

/**
 * Reads the file of one driver.
 * @param base base name of the request; absent: all requests of the file
 * @throws MetadataError `metadata-malformed` if the file lacks the request
 */
async function readFile(path: string, driver: string, base: string | undefined): Promise<RequestMetadata> {
  const { generation, requests, ...rest } = await readMetadata(path);
  const found = requests.filter(({ name }) => base === undefined || baseRequest(name) === base);
  const [first] = found;
  if (first === undefined) {
    const names = requests.map(({ name }) => name).join(', ') || 'none';
    const message = `metadata file ${path} has no request ${base ?? 'at all'}, only ${names}`;
    throw new MetadataError('metadata-malformed', message, { path });
  }
  const devices = found.flatMap((request) => request.devices);
  return { ...rest, request: first.name, devices, files: [{ path, driver, generation }] };
}

/** Merges the files of several drivers. @throws MetadataError `metadata-malformed` if the files belong to two claims */
function merge(parts: RequestMetadata[]): RequestMetadata {
  const files = parts.flatMap((part) => part.files);
  const first = parts[0]!;
  const other = parts.findIndex(({ claim }) => claim.uid !== first.claim.uid);
  if (other >= 0) {
    const { namespace, name, uid } = parts[other]!.claim;
    const path = files[other]!.path;
    const message = `metadata file ${path} belongs to claim ${namespace}/${name} (${uid}), but ${files[0]?.path} to another one`;
    const hint = 'two claims of the pod have the same name in this directory: ask by the other name, or by driver';
    throw new MetadataError('metadata-malformed', message, { path, hint });
  }
  const podClaimName = parts.find((part) => part.podClaimName !== undefined)?.podClaimName;
  return { ...first, ...defined({ podClaimName }), devices: parts.flatMap(({ devices }) => devices), files };
}

function notFound(query: RequestQuery, dirs: string[], drivers: string[]): MetadataError {
  const driver = query.driver === undefined ? '' : ` of driver ${query.driver}`;
  const message = `no metadata file${driver} for ${describe(query)} in ${dirs.join(' or ')}`;
  const rule =
    'extendedResource' in query
      ? 'the container must name the resource in resources.limits, and its DeviceClass must be of such a driver'
      : 'the container must name the claim in resources.claims; claims from a template go by the name in the pod';
  const hint = drivers.length > 0 ? `there are files of ${drivers.join(', ')}` : rule;
  return new MetadataError('metadata-not-found', message, { path: dirs[0], hint });
}

function describe(query: RequestQuery): string {
  if ('extendedResource' in query) return `extended resource ${query.extendedResource}`;
  const claim = 'claim' in query ? `claim ${query.claim}` : `pod claim ${query.podClaim}`;
  return `${claim}, request ${query.request}`;
}
