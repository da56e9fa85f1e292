import { defined } from '../../lib/defined.ts';
import type { AllocatedDevice } from '../kube/index.ts';
import {
  baseRequest,
  claimName,
  type DeviceName,
  formatDeviceKey,
  isSameDevice,
  type PreparedContent,
  type PreparedRecord,
  type RequestRecord,
} from '../metadata/index.ts';
import { runLastStep } from './driver-answers.ts';
import { KubeletPluginError } from './errors.ts';
import type { AllocatedClaim, PreparedClaim, PreparedDevice } from './plugin.ts';

/** Fully qualified CDI name, `vendor/class=name`. Source: Container Device Interface specification, "Kind" and device names. */
const cdiDeviceId = /^[A-Za-z]([\w.-]*[A-Za-z0-9])?\/[A-Za-z]([\w.-]*[A-Za-z0-9])?=[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?$/;

/** A claim's record, and its devices for the kubelet. */
export interface ResolvedClaim extends PreparedRecord {
  devices: PreparedDevice[];
}

/**
 * Converts the devices that a driver prepared to the contents of requests. Allocated devices that the driver leaves out are
 * deferred, and their requests with them.
 * @throws KubeletPluginError `driver-contract` if a device lacks a name, is not allocated to the driver, names a request that
 * the claim does not have, or has an invalid CDI device ID
 */
export function resolvePreparedClaim(driver: string, claim: AllocatedClaim, prepared: PreparedClaim): ResolvedClaim {
  const allocated = claim.results.filter((result) => result.driver === driver);
  const returned = prepared.devices.map((device) => withShare(driver, claim, device));
  const leftOut = allocated.filter((result) => !returned.some((device) => isFor(device, result)));
  const devices = [...returned, ...leftOut.map(deferredDevice)];
  // No prototype, since `constructor` is a valid name of a request.
  const requests: Record<string, RequestRecord> = Object.create(null);
  const contents = new Map<string, PreparedContent>();
  for (const device of devices) {
    const references = device.requests.length > 0 ? device.requests : allocated.map(({ request }) => request);
    for (const base of new Set(references.map(baseRequest))) {
      const name = allocated.find(({ request }) => baseRequest(request) === base)?.request;
      if (name === undefined)
        throw wrongResult(claim, `device ${device.deviceName} is for request ${base}, which is not allocated`);
      const [extendedResources, sharers] = [claim.extendedResources?.get(base), claim.sharers?.get(base)];
      requests[base] ??= { name, devices: [], ...defined({ extendedResources, sharers }) };
      requests[base].devices.push(nameOf(device));
      contents.set(base, withDevice(contents.get(base), driver, device));
    }
  }
  const { identity, podClaimName, hasNamesake, podUids } = claim;
  const [podUid, ...others] = podUids;
  const otherPodUids = others.length === 0 ? undefined : others;
  const names = defined({ podClaimName, hasNamesake, podUid, otherPodUids });
  return {
    record: { claim: identity, requests, ...names },
    contents,
    devices,
    commit: () => runLastStep(identity, prepared, 'commit'),
  };
}

/** Returns whether the driver's device is the allocated device, and serves the request of the allocation. */
function isFor(device: PreparedDevice, result: AllocatedDevice): boolean {
  const bases = device.requests.map(baseRequest);
  return (
    isSameDevice(nameOf(device), allocatedName(result)) &&
    (bases.length === 0 || bases.includes(baseRequest(result.request)))
  );
}

function deferredDevice(result: AllocatedDevice): PreparedDevice {
  const { pool: poolName, device: deviceName, shareID: shareId } = result;
  const requests = [result.request];
  return { requests, poolName, deviceName, cdiDeviceIds: [], metadata: 'deferred', ...defined({ shareId }) };
}

/**
 * Checks a device of the driver. Adds its share ID, which the driver may omit if the claim has only one share of the device.
 */
function withShare(driver: string, claim: AllocatedClaim, device: PreparedDevice): PreparedDevice {
  if (device.poolName === '' || device.deviceName === '') throw wrongResult(claim, 'a device has no pool or no name');
  const badId = device.cdiDeviceIds.find((id) => !cdiDeviceId.test(id));
  if (badId !== undefined)
    throw wrongResult(claim, `${JSON.stringify(badId)} is not a CDI device id, vendor/class=name`);
  const name = nameOf(device);
  const shares = new Set(
    claim.results
      .filter(
        (result) =>
          result.driver === driver && isSameDevice({ ...allocatedName(result), ...name }, allocatedName(result)),
      )
      .map(({ shareID }) => shareID),
  );
  const key = formatDeviceKey({ driver, ...name });
  if (shares.size === 0) throw wrongResult(claim, `device ${key} is not allocated to the claim`);
  if (shares.size > 1) throw wrongResult(claim, `device ${key} is allocated in several shares, but has no shareId`);
  const [shareId] = shares;
  return { ...device, ...defined({ shareId }) };
}

function wrongResult({ identity }: AllocatedClaim, reason: string): KubeletPluginError {
  const claim = claimName(identity);
  const message = `the driver returned a wrong result for claim ${claim}: ${reason}`;
  return new KubeletPluginError('driver-contract', message, { claim });
}

function nameOf({ poolName: pool, deviceName: name, shareId }: PreparedDevice): DeviceName {
  return { pool, name, ...defined({ shareId }) };
}

function allocatedName({ pool, device: name, shareID: shareId }: AllocatedDevice): DeviceName {
  return { pool, name, ...defined({ shareId }) };
}

/**
 * Adds a device to the content of a request. One deferred device defers the whole request: without it the file would be
 * incomplete.
 */
function withDevice(content: PreparedContent | undefined, driver: string, device: PreparedDevice): PreparedContent {
  const { metadata = {} } = device;
  if (content === 'deferred' || metadata === 'deferred') return 'deferred';
  const { attributes, networkData } = metadata;
  return [...(content ?? []), { driver, ...nameOf(device), ...defined({ attributes, networkData }) }];
}
