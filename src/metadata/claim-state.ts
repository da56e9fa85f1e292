import type { ClaimIdentity, DeviceMetadata } from './document.ts';
import { MetadataError } from './errors.ts';
import { createFile, type HostFile, hostPath, readFileIfThere } from './host-file.ts';
import { formatGoJson, parseExactJson } from './json-stream.ts';
import { type LayoutName, layoutNames, type PublishedDevice, type RequestContent } from './layout.ts';
import { metadataDirName } from './layout-v1.ts';
import { claimDirName } from './paths.ts';

/** Where a request of a prepared claim stands. */
export interface RequestState {
  /** The full reference, `request` or `request/subrequest`. */
  name: string;
  devices: PublishedDevice[];
  /** The highest that containers were ever given; 0 if they have found no file yet. */
  generation: number;
  /** What the files say; absent while containers are to find none. */
  content?: { devices: DeviceMetadata[]; since: string };
}

/**
 * What is known of a prepared claim. It is the truth of which the metadata files are the projections: some layouts carry
 * neither generation nor kinds of values, and with deferred metadata there is no file at all yet.
 */
export interface ClaimState {
  claim: ClaimIdentity;
  podClaimName?: string;
  podUid?: string;
  /** The boot of the node in which it was prepared last. */
  bootId?: string;
  /** All in which its files were ever laid down: containers may have them mounted. */
  layouts: LayoutName[];
  /** By base name. */
  requests: Record<string, RequestState>;
}

const schema = 1;

/** Beside the directories of the claim's requests. Only single files are mounted, so no container sees it. */
export function claimStateFile(dataDir: string, claim: Pick<ClaimIdentity, 'namespace' | 'name'>): HostFile {
  return { base: dataDir, parts: [metadataDirName, claimDirName(claim), 'claim.json'] };
}

/** @throws MetadataError `metadata-io` */
export async function writeClaimState(dataDir: string, state: ClaimState): Promise<void> {
  await createFile(claimStateFile(dataDir, state.claim), `${formatGoJson({ schema, ...state })}\n`);
}

/**
 * @returns `undefined` if the claim is not prepared
 * @throws MetadataError `metadata-io`; `metadata-malformed`: one that cannot be read is never "nothing prepared"
 */
export async function readClaimState(
  dataDir: string,
  claim: Pick<ClaimIdentity, 'namespace' | 'name'>,
): Promise<ClaimState | undefined> {
  const file = claimStateFile(dataDir, claim);
  const text = await readFileIfThere(file);
  return text === undefined ? undefined : parseClaimState(text, hostPath(file));
}

function parseClaimState(text: string, path: string): ClaimState {
  let value: Partial<ClaimState> & { schema?: unknown };
  try {
    value = parseExactJson(text) as typeof value;
  } catch (cause) {
    throw new MetadataError('metadata-malformed', `claim record ${path} is not JSON`, {
      cause,
      path,
      hint: 'delete the pods that use the claim: unpreparing it removes the record',
    });
  }
  if (value?.schema !== schema || value.claim === undefined || value.requests === undefined) {
    throw new MetadataError('metadata-malformed', `claim record ${path} has schema ${value?.schema}, not ${schema}`, {
      path,
      hint: 'it was written by another version of the driver',
    });
  }
  const { schema: _schema, claim, requests, layouts = [], ...rest } = value;
  return { ...rest, claim, requests, layouts: layouts.filter((name) => layoutNames.includes(name)) };
}

/** What layouts need to know of one request. */
export function contentOf(state: ClaimState, base: string, driver: string): RequestContent & { podUid?: string } {
  const { name: request, devices, generation, content } = requestOf(state, base);
  const { claim, podClaimName, podUid } = state;
  const identity = { claim, ...(podClaimName === undefined ? {} : { podClaimName }) };
  return {
    ...identity,
    request,
    driver,
    published: devices,
    ...(podUid === undefined ? {} : { podUid }),
    ...(content === undefined
      ? {}
      : { document: { ...identity, generation, request, devices: content.devices }, readySince: content.since }),
  };
}

/** @throws TypeError for a base name that the claim has not: callers have checked */
export function requestOf(state: ClaimState, base: string): RequestState {
  const request = findRequest(state.requests, base);
  if (request === undefined) throw new TypeError(`request ${base} is not in the claim's state`);
  return request;
}

/** Own members only: `constructor` is a valid name of a request. */
export function findRequest<T>(requests: Readonly<Record<string, T>>, base: string): T | undefined {
  return Object.hasOwn(requests, base) ? requests[base] : undefined;
}
