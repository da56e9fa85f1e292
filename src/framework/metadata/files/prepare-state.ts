import { isDeepStrictEqual } from 'node:util';
import { defined } from '../../../lib/defined.ts';
import { encodeObject, type MetadataVersion, metadataVersions } from '../document/codec.ts';
import { type DeviceName, findDevice, isSameDevice } from '../document/device-key.ts';
import type { DeviceAttributes, DeviceMetadata } from '../document/document.ts';
import { validateDevices } from '../document/validate.ts';
import type { LayoutName } from '../layouts/layout.ts';
import { pathPart } from '../layouts/paths.ts';
import type { ClaimRecord, PreparedContent, RequestRecord } from './claim-record.ts';
import { type ClaimState, findRequest, type RequestState } from './claim-state.ts';

/** Input for preparing a claim. */
export interface Preparation {
  record: ClaimRecord;
  /** Contents by base name; a request without an entry is deferred. */
  contents: ReadonlyMap<string, PreparedContent>;
  layouts: readonly LayoutName[];
  versions: readonly MetadataVersion[];
  /** Whether containers wait for deferred requests at the gate. */
  isGated: boolean;
  bootId: string;
  attributesOf: (device: DeviceName) => DeviceAttributes | undefined;
  now: Date;
}

/**
 * Returns the state of a claim that is being prepared, for the first time or again.
 * @param kept the claim's previous state. Its generations continue. Content from updates stays, except in three cases: the node
 * has booted since; the claim was allocated again with other devices; a single new pod has taken over the claim and nothing
 * makes that pod wait
 * @throws MetadataError `metadata-invalid`, `metadata-name-invalid`
 */
export function prepareState(preparation: Preparation, kept: ClaimState | undefined): ClaimState {
  const { record, contents, bootId, layouts } = preparation;
  const { claim, podClaimName, hasNamesake } = record;
  pathPart(claim.uid, 'claim UID');
  // The gate opens when every gated request has content: requests that are no longer prepared must not count.
  const requests = new Map<string, RequestState>(
    Object.entries(kept?.requests ?? {}).map(([base, { isGated: _, content: _over, ...rest }]) => {
      return [base, { ...rest, devices: [] }];
    }),
  );
  // After a boot, or with other devices, the pod gets a new sandbox, and content about the old one is obsolete.
  const isOver = kept === undefined || kept.bootId !== bootId || hasOtherDevices(record, kept);
  const isHandedOver = kept !== undefined && hasOnlyNewPod(record, kept);
  for (const [base, request] of Object.entries(record.requests)) {
    const content = contents.get(base) ?? 'deferred';
    const waits = preparation.isGated && content === 'deferred';
    if (content !== 'deferred') validateDevices(claim, request.name, content);
    const before = findRequest(kept?.requests ?? {}, pathPart(base, 'request'));
    const mustHide = isOver || (isHandedOver && !waits);
    requests.set(base, prepareRequest(preparation, request, content, before && { ...before, isOver: mustHide }));
  }
  // The first pod stays: the CDI specs that containers use name its directory.
  const podUid = kept?.podUid ?? record.podUid;
  const pods = podsOf(record).filter((uid) => uid !== podUid);
  const otherPodUids = pods.length === 0 ? undefined : pods;
  const versions = versionsOf(preparation.versions, kept);
  return {
    claim,
    ...defined({ podClaimName, hasNamesake, podUid, otherPodUids, bootId, versions }),
    layouts: [...new Set([...(kept?.layouts ?? []), ...layouts])],
    requests: Object.fromEntries(requests),
    servedBy: isOver || (isHandedOver && !preparation.isGated) ? null : kept.servedBy,
  };
}

/** Returns whether a request was prepared with other devices before: the claim was deallocated in between. */
function hasOtherDevices({ requests }: ClaimRecord, kept: ClaimState): boolean {
  return Object.entries(kept.requests).some(([base, { devices }]) => !areSame(requests[base]?.devices ?? [], devices));
}

/**
 * Returns whether the claim was prepared for other pods before, and now for a single pod, which must therefore be starting. If
 * there were several pods, some could be running and reading the files: the kubelet makes no call when a pod joins a prepared
 * claim.
 */
function hasOnlyNewPod(record: ClaimRecord, kept: ClaimState): boolean {
  const [[uid, ...others], before] = [podsOf(record), podsOf(kept)];
  return uid !== undefined && others.length === 0 && before.length > 0 && !before.includes(uid);
}

function podsOf({ podUid, otherPodUids = [] }: ClaimRecord | ClaimState): string[] {
  return podUid === undefined ? [...otherPodUids] : [podUid, ...otherPodUids];
}

/**
 * Adds the versions of earlier prepares, whose files containers may read. @returns the versions to write; `undefined` stands
 * for all
 */
function versionsOf(wanted: readonly MetadataVersion[], kept: ClaimState | undefined): MetadataVersion[] | undefined {
  const had = kept && (kept.versions ?? metadataVersions);
  const versions = metadataVersions.filter((version) => wanted.includes(version) || had?.includes(version));
  return versions.length === metadataVersions.length ? undefined : versions;
}

function prepareRequest(
  { attributesOf, now, isGated }: Preparation,
  { name, devices, extendedResources, sharers }: RequestRecord,
  prepared: PreparedContent,
  kept: (RequestState & { isOver: boolean }) | undefined,
): RequestState {
  const given = prepared === 'deferred' ? [] : prepared;
  const published = devices.map((device) => ({
    ...device,
    attributes: attributesOf(device) ?? findDevice(kept?.devices, device)?.attributes ?? {},
    ...defined({ given: findDevice(given, device)?.attributes }),
  }));
  const request: RequestState = {
    name,
    devices: published,
    generation: kept?.generation ?? 0,
    ...defined({ extendedResources, sharers }),
  };
  const known = kept?.isOver === false ? kept.content : undefined;
  if (prepared === 'deferred') {
    return { ...request, ...defined({ content: known, isGated: isGated || undefined }) };
  }
  // Content that only an earlier prepare gave is obsolete.
  const updated = known?.updated ?? known?.devices ?? [];
  const merged = given.map((device) => mergeDevice(findDevice(updated, device), device));
  return withContent({ ...request, ...defined({ content: kept?.content }) }, merged, now, updated);
}

/**
 * Returns the request with this content. Increments the request's generation, unless the request's files would look the same.
 * Returns the request itself if nothing changes.
 * @param now time since which the request has content, if it had none before
 * @param updated devices as the last update gave them
 */
export function withContent(
  request: RequestState,
  devices: DeviceMetadata[],
  now: Date,
  updated: DeviceMetadata[] = devices,
): RequestState {
  const { name, generation, content } = request;
  const since = content?.since ?? formatTime(now);
  const part = isDeepStrictEqual(updated, devices) ? {} : { updated };
  if (content === undefined || !looksSame(name, content.devices, devices))
    return { ...request, generation: generation + 1, content: { devices, since, ...part } };
  const { updated: before, ...rest } = content;
  return isDeepStrictEqual(before, part.updated) ? request : { ...request, content: { ...rest, ...part } };
}

/** Merges two reports on a device. Known values stay if a prepare reports less than an earlier update. */
function mergeDevice(known: DeviceMetadata | undefined, given: DeviceMetadata): DeviceMetadata {
  const attributes = { ...known?.attributes, ...given.attributes };
  return { ...known, ...given, ...(Object.keys(attributes).length === 0 ? {} : { attributes }) };
}

function looksSame(request: string, some: DeviceMetadata[], others: DeviceMetadata[]): boolean {
  if (isDeepStrictEqual(some, others)) return true;
  return areSame(some, others) && textOf(request, some) === textOf(request, others);
}

function areSame(some: readonly DeviceName[], others: readonly DeviceName[]): boolean {
  return some.length === others.length && some.every((device, index) => isSameDevice(device, others[index]!));
}

/** Returns a text that is equal for devices that look the same in a file. */
function textOf(request: string, devices: DeviceMetadata[]): string {
  return encodeObject({ claim: { namespace: '', name: '', uid: '' }, generation: 0, request, devices }, 'v1beta1');
}

/** Formats a time as RFC 3339 in whole seconds, as Kubernetes does. */
function formatTime(date: Date): string {
  return `${date.toISOString().slice(0, 19)}Z`;
}
