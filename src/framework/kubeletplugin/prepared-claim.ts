import { defined } from '../../lib/defined.ts';
import {
  baseRequest,
  claimName,
  type DeviceName,
  type PreparedContent,
  type PreparedRecord,
  type RequestRecord,
} from '../metadata/index.ts';
import { KubeletPluginError } from './errors.ts';
import type { AllocatedClaim, PreparedClaim, PreparedDevice } from './plugin.ts';

/** `vendor/class=name`. Source: Container Device Interface specification, "Kind" and device names. */
const cdiDeviceId = /^[A-Za-z]([\w.-]*[A-Za-z0-9])?\/[A-Za-z]([\w.-]*[A-Za-z0-9])?=[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?$/;

/** A claim's record, and its devices for the kubelet. */
export interface ResolvedClaim extends PreparedRecord {
  devices: PreparedDevice[];
}

/**
 * Converts the driver's devices to the contents of requests. Requests without a device are deferred, with their allocated
 * devices.
 * @throws KubeletPluginError `driver-contract` if a device lacks a name, names a request that the claim does not have, or
 * has an invalid CDI device ID
 */
export function resolvePreparedClaim(driver: string, claim: AllocatedClaim, prepared: PreparedClaim): ResolvedClaim {
  const { devices: returned } = prepared;
  const allocated = claim.results.filter((result) => result.driver === driver);
  const named = new Set(returned.flatMap(({ requests }) => requests.map(baseRequest)));
  const isForAll = returned.some(({ requests }) => requests.length === 0);
  const leftOut = isForAll ? [] : allocated.filter(({ request }) => !named.has(baseRequest(request)));
  const devices = [...returned, ...leftOut.map(deferredDevice)];
  // Without a prototype: `constructor` is a valid name of a request.
  const requests: Record<string, RequestRecord> = Object.create(null);
  const contents = new Map<string, PreparedContent>();
  for (const device of devices) {
    const references = device.requests.length > 0 ? device.requests : allocated.map(({ request }) => request);
    for (const reference of new Set(references)) {
      const name = allocated.find(({ request }) => baseRequest(request) === baseRequest(reference))?.request;
      checkDevice(claim, device, reference, name);
      const base = baseRequest(name);
      const [extendedResources, sharers] = [claim.extendedResources?.get(base), claim.sharers?.get(base)];
      requests[base] ??= { name, devices: [], ...defined({ extendedResources, sharers }) };
      requests[base].devices.push(nameOf(device));
      contents.set(base, withDevice(contents.get(base), driver, device));
    }
  }
  const { identity, podClaimName, podUids } = claim;
  const [podUid, ...others] = podUids;
  const otherPodUids = others.length === 0 ? undefined : others;
  const names = defined({ podClaimName, podUid, otherPodUids });
  return { record: { claim: identity, requests, ...names }, contents, devices, commit: () => prepared.commit?.() };
}

function deferredDevice(result: AllocatedClaim['results'][number]): PreparedDevice {
  return {
    requests: [result.request],
    poolName: result.pool,
    deviceName: result.device,
    cdiDeviceIds: [],
    metadata: 'deferred',
    ...defined({ shareId: result.shareID }),
  };
}

function checkDevice(
  claim: AllocatedClaim,
  device: PreparedDevice,
  reference: string,
  name: string | undefined,
): asserts name is string {
  const subject = claimName(claim.identity);
  const refuse = (reason: string) =>
    new KubeletPluginError('driver-contract', `the driver returned a wrong result for claim ${subject}: ${reason}`, {
      claim: subject,
    });
  if (device.poolName === '' || device.deviceName === '') throw refuse('a device has no pool or no name');
  const badId = device.cdiDeviceIds.find((id) => !cdiDeviceId.test(id));
  if (badId !== undefined) throw refuse(`${JSON.stringify(badId)} is not a CDI device id, vendor/class=name`);
  if (name === undefined)
    throw refuse(`device ${device.deviceName} is for request ${reference}, which is not allocated`);
}

function nameOf({ poolName: pool, deviceName: name, shareId }: PreparedDevice): DeviceName {
  return { pool, name, ...defined({ shareId }) };
}

/** One deferred device defers its whole request: without it the file would be incomplete. */
function withDevice(content: PreparedContent | undefined, driver: string, device: PreparedDevice): PreparedContent {
  if (content === 'deferred' || device.metadata === 'deferred') return 'deferred';
  return [...(content ?? []), { driver, ...nameOf(device), ...device.metadata }];
}
