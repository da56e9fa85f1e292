import { z } from 'zod';
import { copyOf } from '../../../lib/copy.ts';
import { defined } from '../../../lib/defined.ts';
import { deepFreeze } from '../../../lib/freeze.ts';
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
  /** Attributes that the driver gave at the last prepare, which override these. */
  given?: DeviceAttributes;
}

/** State of one request of a prepared claim. */
export interface RequestState extends RequestRecord {
  devices: RecordedDevice[];
  /** The highest generation that containers ever got; 0 if no file was written yet. */
  generation: number;
  /** Content of the files; absent while containers must find none. */
  content?: {
    devices: DeviceMetadata[];
    /** The devices as the last update gave them, without what the last prepare has added; absent: as in `devices`. */
    updated?: DeviceMetadata[];
    since: string;
  };
  /**
   * Whether its containers wait at the gate: then files without content are blank. Otherwise such files are missing, which
   * keeps containers from starting.
   */
  isGated?: true;
}

/**
 * State of a prepared claim, the source of truth for its metadata files: some layouts have neither generation nor kinds of
 * values, and with deferred metadata there is no file yet.
 */
export interface ClaimState {
  claim: ClaimIdentity;
  podClaimName?: string;
  /** See `ClaimRecord`. */
  hasNamesake?: true;
  /**
   * UID of the first pod that the claim was prepared for; the containers of all its pods mount the files in this pod's
   * directory.
   */
  podUid?: string;
  /** UIDs of the claim's other pods. */
  otherPodUids?: readonly string[];
  /** ID of the boot in which it was last prepared. */
  bootId?: string;
  /** All layouts in which files were ever created: containers may have them mounted. */
  layouts: LayoutName[];
  /** Versions of files in the layout `v1`, with the same rule, newest first; absent: all. */
  versions?: MetadataVersion[];
  /** Requests by base name. */
  requests: Record<string, RequestState>;
  /** Runtime's ID of the sandbox whose containers may start; `null`: none may. The gate follows from it. */
  servedBy: string | null;
  /** ID of the sandbox to be served next, and the requests, by base name, that were updated for it since the gate was closed. */
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

/** As in a metadata document, which does not have the share. */
function decodeRecorded(value: unknown): DeviceMetadata {
  const { shareId } = z.object({ shareId: z.string().optional() }).parse(value);
  return { ...decodeDevice(value, 'device'), ...defined({ shareId }) };
}

export function formatClaimState(state: ClaimState): string {
  const text = `${formatGoJson({ schema, ...state })}\n`;
  // It is read soon, and parsing takes several times as long as a copy.
  remember(text, copyOf(state));
  return text;
}

/**
 * @param dir name of the claim's directory under which the record was found
 * @param where the record is, for messages
 * @throws MetadataError `metadata-malformed` for a damaged record, `metadata-version-unknown` for that of a newer version: an
 * unreadable state never counts as "nothing prepared"
 */
export function parseClaimState(text: string, dir: string, where: string): ClaimState {
  const state = known.get(text) ?? parseRecord(text, where);
  // The record decides what is removed with a claim: another claim's record must not pass for ours.
  if (isIn(state, dir)) return state;
  const cause = new Error(`the record is of claim ${claimName(state.claim)}`);
  throw damaged(where, 'is damaged', cause);
}

function isIn({ claim }: ClaimState, dir: string): boolean {
  try {
    return claimDirName(claim) === dir;
  } catch {
    // A claim of such a name has no directory.
    return false;
  }
}

/** The latest records by text, since each is read several times while its pod starts. Frozen, since readers share them. */
const known = new Map<string, ClaimState>();
const knownAtMost = 64;

function remember(text: string, state: ClaimState): ClaimState {
  known.set(text, deepFreeze(state));
  if (known.size > knownAtMost) known.delete(known.keys().next().value as string);
  return state;
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
    return remember(text, stateSchema.parse(value) as ClaimState);
  } catch (cause) {
    throw damaged(path, 'is damaged', cause);
  }
}

function damaged(path: string, problem: string, cause?: unknown): MetadataError {
  const hint =
    'the next prepare of the claim writes the record anew; if none comes, delete the pods that use the claim, or, without such pods, the directory of the claim';
  return new MetadataError('metadata-malformed', `claim record ${path} ${problem}`, { cause, path, hint });
}

/** Returns the facts of one request that layouts need. */
export function contentOf(state: ClaimState, base: string, driver: string): RequestContent & { podUid?: string } {
  const { name: request, devices, extendedResources, generation, content } = requestOf(state, base);
  const { claim, podClaimName, hasNamesake, podUid, versions } = state;
  const identity = { claim, ...defined({ podClaimName }) };
  const document = content && { ...identity, generation, request, devices: content.devices };
  const more = defined({ hasNamesake, podUid, document, versions, extendedResources, readySince: content?.since });
  const published = devices.map(({ given, attributes, ...device }) => ({
    ...device,
    attributes: { ...attributes, ...given },
  }));
  return { ...identity, request, driver, published, ...more };
}

/** @throws TypeError for a base name that the claim does not have: callers have checked */
export function requestOf(state: ClaimState, base: string): RequestState {
  const request = findRequest(state.requests, base);
  if (request === undefined) throw new TypeError(`request ${base} is not in the claim's state`);
  return request;
}

/** Returns whether containers of the claim wait at its gate. */
export function hasGate({ requests }: ClaimState): boolean {
  return Object.values(requests).some(({ isGated }) => isGated === true);
}

/** Returns the state in which files without content are missing, instead of containers waiting at the gate. */
export function withoutGate(state: ClaimState): ClaimState {
  const requests = Object.entries(state.requests).map(([base, { isGated: _over, ...request }]) => [base, request]);
  return { ...state, requests: Object.fromEntries(requests) };
}

/** Finds a request among own members only: `constructor` is a valid name of a request. */
export function findRequest<T>(requests: Readonly<Record<string, T>>, base: string): T | undefined {
  return Object.hasOwn(requests, base) ? requests[base] : undefined;
}
