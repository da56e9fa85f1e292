import { findDevice, formatDeviceKey } from '../document/device-key.ts';
import { baseRequest, type ClaimIdentity, claimName, type DeviceMetadata } from '../document/document.ts';
import { MetadataError } from '../errors.ts';
import { type ClaimState, findRequest, type RequestState } from './claim-state.ts';

/** Claim, request and devices of an update. */
export interface UpdateTarget {
  claim: ClaimIdentity;
  /** Base name of the request, or the full `request/subrequest` that was allocated. */
  request: string;
  devices: readonly DeviceMetadata[];
  driver: string;
}

/**
 * Checks that a driver updates only claims and devices that it prepared itself. Source: KEP-5304 `MetadataUpdater`, "the
 * framework validates that this request's devices belong to the calling driver".
 * @throws MetadataError `metadata-not-prepared`
 */
export function checkOwnership(state: ClaimState, target: UpdateTarget): void {
  const { claim, request, devices, driver } = target;
  const refuse = (reason: string, device?: string) => refusal(claim, reason, device);
  const base = baseRequest(request);
  const prepared = findRequest(state.requests, base);
  if (prepared === undefined) throw refuse(`request ${request} is not prepared`);
  if (request !== base && request !== prepared.name) {
    throw refuse(`request ${request} is not prepared, ${prepared.name} is`);
  }
  for (const device of devices) {
    if (device.driver !== driver || findDevice(prepared.devices, device) === undefined) {
      throw refuse(`device ${formatDeviceKey(device)} is not prepared for request ${request}`, device.name);
    }
  }
}

/**
 * Checks that all requests for which containers wait have content, so that the containers may start.
 * @throws MetadataError `metadata-not-written`
 */
export function checkAllWritten(state: ClaimState, claim: ClaimIdentity): void {
  const empty = findUnwritten(state);
  if (empty === undefined) return;
  const subject = claimName(claim);
  const message = `cannot let containers of claim ${subject} start: request ${empty.name} has no metadata yet`;
  const hint = 'update the metadata of every request first';
  throw new MetadataError('metadata-not-written', message, { claim: subject, hint });
}

/** Returns a request for which containers wait, since its files have no content yet; `undefined` if no layout has files. */
export function findUnwritten({
  layouts,
  requests,
}: Pick<ClaimState, 'layouts' | 'requests'>): RequestState | undefined {
  if (layouts.length === 0) return undefined;
  return Object.values(requests).find(({ isGated, content }) => isGated === true && content === undefined);
}

/** Checks that a claim is prepared, with this UID. @throws MetadataError `metadata-not-prepared` */
export function checkPrepared(state: ClaimState | undefined, claim: ClaimIdentity): ClaimState {
  if (state?.claim.uid === claim.uid) return state;
  const reason =
    state === undefined
      ? 'the claim is not prepared'
      : `the claim is prepared with UID ${state.claim.uid}, not ${claim.uid}`;
  throw refusal(claim, reason);
}

function refusal(claim: ClaimIdentity, reason: string, device?: string): MetadataError {
  const subject = claimName(claim);
  const message = `cannot update metadata of claim ${subject}: ${reason}`;
  return new MetadataError('metadata-not-prepared', message, { claim: subject, device });
}
