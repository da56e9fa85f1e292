import type { ClaimStatusWriter, DeviceStatus } from '../../framework/claimstatus/index.ts';
import type { StatusCondition } from '../../framework/kube/index.ts';
import {
  type ClaimIdentity,
  type DeviceAttribute,
  type DeviceMetadata,
  isSameDevice,
} from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import type { ClaimDevices, StoredClaim, StoredDevice } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import { type MetadataReader, metadataOf } from './pod-metadata.ts';

interface DeviceConditionSource {
  /** Returns a condition of a claim's device, for the claim's status. */
  conditionOf(claimUid: string, device: string): StatusCondition | undefined;
}

export interface StatusReportOptions {
  store: StoredClaims;
  metadata: MetadataReader;
  writer: Pick<ClaimStatusWriter, 'set'>;
  numa: DeviceConditionSource;
  drift: DeviceConditionSource;
}

/** Why VFs of a claim are not in their pod. */
interface AttachFailure {
  /** Message for users. */
  reason: string;
  /** VFs that have left the pod, perhaps with metadata; absent: all VFs of the claim. */
  lost?: readonly StoredDevice[];
}

/** Reports the state of prepared claims' VFs in the status of the claims. */
export class StatusReport {
  readonly #options: StatusReportOptions;
  /** Failures of claims that were not served since, by UID of the claim. Later reports repeat them. */
  readonly #failures = new Map<string, AttachFailure>();

  constructor(options: StatusReportOptions) {
    this.#options = options;
  }

  /** Records that the VFs of a claim are in their pod, so that its last failure is over. */
  served(claim: ClaimIdentity): void {
    this.#failures.delete(claim.uid);
  }

  /**
   * Reports the VFs of a claim.
   * @param isSettled `false` if the state will change soon
   * @param failure failure of the claim, which concerns its VFs without metadata, too; later reports repeat it
   */
  report(claim: ClaimIdentity, isSettled = true, failure?: AttachFailure): void {
    const { store, writer, numa, drift } = this.#options;
    const stored = store.claim(claim.uid);
    if (stored?.state !== 'prepared') return;
    const { devices } = stored;
    const states = new Map(devices.map((device) => [device, this.#stateOf(stored, device)]));
    const { reason, lost = devices } = this.#failureOf(stored, failure) ?? {};
    if (reason !== undefined) {
      const isAway = (device: StoredDevice) =>
        states.get(device) === undefined || lost.some((other) => isSameDevice(other, device));
      const away = devices.filter(isAway);
      for (const device of away.length === 0 ? devices : away) states.delete(device);
    }
    const statuses = toDeviceStatuses(stored, (device) => states.get(device), reason).map((status) => {
      const { device } = status;
      const conditions = [numa.conditionOf(claim.uid, device), drift.conditionOf(claim.uid, device)];
      const known = conditions.filter((condition) => condition !== undefined);
      return known.length === 0 ? status : { ...status, conditions: known };
    });
    writer.set(claim, statuses, isSettled);
  }

  /** Reports all claims with attached VFs: a report may not have been written before the driver stopped. */
  reportAttached(): void {
    for (const claim of this.#options.store.claims()) {
      if (claim.devices.some((device) => this.#stateOf(claim, device)?.networkData)) this.report(claim.identity);
    }
  }

  /** Returns the last failure of a claim, which is over once none of its VFs is in a pod any more. */
  #failureOf(
    { identity: { uid }, devices }: StoredClaim,
    failure: AttachFailure | undefined,
  ): AttachFailure | undefined {
    for (const other of this.#failures.keys()) {
      if (this.#options.store.claim(other) === undefined) this.#failures.delete(other);
    }
    const last = failure ?? this.#failures.get(uid);
    if (last === undefined || devices.every(({ attachment }) => attachment === undefined)) this.#failures.delete(uid);
    else this.#failures.set(uid, last);
    return last;
  }

  #stateOf({ identity }: StoredClaim, device: StoredDevice): DeviceMetadata | undefined {
    return device.attachment && metadataOf(this.#options.metadata, identity, device);
  }
}

/**
 * Returns the status of a claim's VFs.
 * @param stateOf returns the state of a VF in the pod, from its metadata; `undefined` if it has no metadata
 * @param failure why VFs without metadata are not in the pod, as a message for users
 */
export function toDeviceStatuses(
  { devices }: ClaimDevices,
  stateOf: (device: StoredDevice) => Partial<DeviceMetadata> | undefined,
  failure = 'the device is not in the network of the pod',
): DeviceStatus[] {
  return devices.map((device) => {
    const { pool, name, shareId } = device;
    const { networkData, attributes } = stateOf(device) ?? {};
    const facts = { pool, device: name, ...defined({ shareId }), data: toData(device, attributes?.bondActive) };
    return networkData !== undefined
      ? { ...facts, ready: true, reason: 'Attached', networkData }
      : { ...facts, ready: false, reason: 'NotAttached', message: failure };
  });
}

/**
 * Returns the data of a VF in the status. @param active whether its bond sends and receives through the VF; absent if it is
 * in no bond, or if that is unknown
 */
function toData({ pciAddress, config, access }: StoredDevice, active: DeviceAttribute | undefined): object {
  const attach = config.attach ?? 'netlink';
  const bond = config.bond && { name: config.bond.name, ...defined({ active: active?.bool }) };
  return { pciAddress, attach, ...defined({ vlan: config.vf?.vlan, driver: access?.driver, bond }) };
}
