import { z } from 'zod';
import { defined } from '../../../lib/defined.ts';
import { type MetadataVersion, metadataVersions } from '../document/codec.ts';
import { decodeAttributes, decodeDevice } from '../document/decode.ts';
import { type ClaimIdentity, claimName, type DeviceAttributes, type DeviceMetadata } from '../document/document.ts';
import { formatGoJson, parseExactJson } from '../document/json-stream.ts';
import { MetadataError } from '../errors.ts';
import { type LayoutName, layoutNames, type PublishedDevice, type RequestContent } from '../layouts/layout.ts';
import { claimDirName } from '../layouts/paths.ts';
import type { RequestRecord } from './claim-record.ts';

/** A device of a prepared claim, with its attributes in the ResourceSlice. */
interface RecordedDevice extends PublishedDevice {
  /** Attributes that the driver gave at the last prepare. They override those of the ResourceSlice. */
  given?: DeviceAttributes;
}

/** State of one request of a prepared claim. */
export interface RequestState extends RequestRecord {
  devices: RecordedDevice[];
  /** Highest generation that a file ever had; 0 if no file was written yet. */
  generation: number;
  /** Content of the files; absent while containers must find no content. */
  content?: {
    devices: DeviceMetadata[];
    /** Devices as the last update gave them, without additions by the last prepare; absent: the same as `devices`. */
    updated?: DeviceMetadata[];
    since: string;
  };
  /**
   * Whether containers of the request wait at the gate: then files without content are blank. Otherwise such files are missing,
   * which keeps containers from starting.
   */
  isGated?: true;
}

/**
 * State of a prepared claim, from which its metadata files follow. The files cannot replace it: in some layouts they have
 * neither generation nor kinds of values, and with deferred metadata there is no file yet.
 */
export interface ClaimState {
  claim: ClaimIdentity;
  podClaimName?: string;
  /** See `ClaimRecord`. */
  hasNamesake?: true;
  /**
   * UID of the first pod for which the claim was prepared. The containers of all its pods mount the files in this pod's
   * directory.
   */
  podUid?: string;
  /** UIDs of the claim's other pods. */
  otherPodUids?: readonly string[];
  /** ID of the boot in which the claim was last prepared. */
  bootId?: string;
  /** All layouts in which files were ever created: containers may have them mounted. */
  layouts: LayoutName[];
  /** Versions of all files that were ever created in the layout `v1`, newest first; absent: all versions. */
  versions?: MetadataVersion[];
  /** Requests by base name. */
  requests: Record<string, RequestState>;
  /** The runtime's ID of the sandbox whose containers may start; `null`: none may. The gate follows from it. */
  servedBy: string | null;
  /** Sandbox to be served next, by ID, and base names of the requests that were updated for it since the gate was closed. */
  opening?: { sandboxId: string; requests: string[] };
}

const schema = 1;

const stateSchema = z.object({
  claim: z.object({ namespace: z.string(), name: z.string(), uid: z.string() }),
  podClaimName: z.string().optional(),
  hasNamesake: z.literal(true).optional(),
  podUid: z.string().optional(),
  otherPodUids: z.array(z.string()).optional(),
  bootId: z.string().optional(),
  layouts: z.array(z.string()).transform((names) => layoutNames.filter((name) => names.includes(name))),
  versions: z
    .array(z.string())
    .transform((names) => metadataVersions.filter((name) => names.includes(name)))
    .optional(),
  requests: z.record(
    z.string(),
    z.object({
      name: z.string(),
      devices: z.array(
        z.object({
          pool: z.string(),
          name: z.string(),
          shareId: z.string().optional(),
          attributes: z
            .unknown()
            .optional()
            .transform((value) => decodeAttributes(value ?? {}, 'attributes')),
          given: z
            .unknown()
            .transform((value) => decodeAttributes(value, 'given'))
            .optional(),
        }),
      ),
      extendedResources: z.array(z.string()).optional(),
      sharers: z.array(z.string()).optional(),
      generation: z.int(),
      content: z
        .object({
          devices: z.array(z.unknown().transform(decodeRecorded)),
          updated: z.array(z.unknown().transform(decodeRecorded)).optional(),
          since: z.string(),
        })
        .optional(),
      isGated: z.literal(true).optional(),
    }),
  ),
  servedBy: z.string().nullable(),
  opening: z.object({ sandboxId: z.string(), requests: z.array(z.string()) }).optional(),
});

/** Decodes a device in the form of a metadata document, which does not have the share ID. */
function decodeRecorded(value: unknown): DeviceMetadata {
  const { shareId } = z.object({ shareId: z.string().optional() }).parse(value);
  return { ...decodeDevice(value, 'device'), ...defined({ shareId }) };
}

export function formatClaimState(state: ClaimState): string {
  return `${formatGoJson({ schema, ...state })}\n`;
}

/**
 * Parses a record.
 * @param dir name of the claim's directory, under which the record was found
 * @param where place of the record, for messages
 * @throws MetadataError `metadata-malformed` for a damaged record, `metadata-version-unknown` for a record of a newer version:
 * an unreadable state never counts as "nothing prepared"
 */
export function parseClaimState(text: string, dir: string, where: string): ClaimState {
  const state = parseRecord(text, where);
  // The record decides what is removed with a claim: the record of another claim must be refused.
  if (isIn(state, dir)) return state;
  const cause = new Error(`the record is of claim ${claimName(state.claim)}`);
  throw damaged(where, 'is damaged', cause);
}

function isIn({ claim }: ClaimState, dir: string): boolean {
  try {
    return claimDirName(claim) === dir;
  } catch {
    // No claim with such a name has a directory.
    return false;
  }
}

function parseRecord(text: string, path: string): ClaimState {
  let value: { schema?: unknown } | null;
  try {
    value = parseExactJson(text) as typeof value;
  } catch (cause) {
    throw damaged(path, 'is not JSON', cause);
  }
  const found = value?.schema;
  if (found !== schema) {
    const problem = `has schema ${found}, not ${schema}`;
    if (typeof found !== 'number' || found < schema) throw damaged(path, problem);
    throw new MetadataError('metadata-version-unknown', `claim record ${path} ${problem}`, {
      path,
      hint: 'run the newer version of the driver that has written it, or delete the pods that use the claim',
    });
  }
  try {
    return stateSchema.parse(value) as ClaimState;
  } catch (cause) {
    throw damaged(path, 'is damaged', cause);
  }
}

function damaged(path: string, problem: string, cause?: unknown): MetadataError {
  const hint =
    'the next prepare of the claim writes the record anew; if none comes, delete the pods that use the claim, or, without such pods, the directory of the claim';
  return new MetadataError('metadata-malformed', `claim record ${path} ${problem}`, { cause, path, hint });
}

/** Returns the data of one request that layouts need. */
export function contentOf(state: ClaimState, base: string, driver: string): RequestContent & { podUid?: string } {
  const { name: request, devices, extendedResources, generation, content } = requestOf(state, base);
  const { claim, podClaimName, hasNamesake, podUid, versions } = state;
  const identity = { claim, ...defined({ podClaimName }) };
  const document = content && { ...identity, generation, request, devices: content.devices };
  const more = defined({ hasNamesake, podUid, document, versions, extendedResources, readySince: content?.since });
  return {
    ...identity,
    request,
    driver,
    ...more,
    // Not copied at each read: only some layouts show it.
    get published() {
      return devices.map(({ given, attributes, ...device }) => ({
        ...device,
        attributes: { ...attributes, ...given },
      }));
    },
  };
}

/**
 * Returns a request of the claim. @throws TypeError for a base name that the claim does not have, which callers have excluded
 */
export function requestOf(state: ClaimState, base: string): RequestState {
  const request = findRequest(state.requests, base);
  if (request === undefined) throw new TypeError(`request ${base} is not in the claim's state`);
  return request;
}

/** Returns whether containers of the claim wait at its gate. */
export function hasGate({ requests }: ClaimState): boolean {
  return Object.values(requests).some(({ isGated }) => isGated === true);
}

/** Returns the state of the claim without a gate: files without content are missing, and no container waits. */
export function withoutGate(state: ClaimState): ClaimState {
  const requests = Object.entries(state.requests).map(([base, { isGated: _over, ...request }]) => [base, request]);
  return { ...state, requests: Object.fromEntries(requests) };
}

/** Finds a request among the object's own members only: `constructor` is a valid name of a request. */
export function findRequest<T>(requests: Readonly<Record<string, T>>, base: string): T | undefined {
  return Object.hasOwn(requests, base) ? requests[base] : undefined;
}
