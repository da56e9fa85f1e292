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

/** Reports the state of prepared claims' VFs in the status of the claims. */
export class StatusReport {
  readonly #options: StatusReportOptions;
  /**
   * Reasons why VFs are not in their pod, by UID of the claim. They are kept, since later reports may be about other VFs of
   * the claim.
   */
  readonly #failures = new Map<string, string>();

  constructor(options: StatusReportOptions) {
    this.#options = options;
  }

  /**
   * Reports the VFs of a claim.
   * @param isSettled `false` if the state will change soon
   * @param failure why VFs are not in their pod, as a message for users: those without metadata and those in `lost`, or all
   * if there is none; kept for later reports
   * @param lost VFs that have left the pod, perhaps with metadata; absent: all VFs
   */
  report(claim: ClaimIdentity, isSettled = true, failure?: string, lost?: readonly StoredDevice[]): void {
    const { store, writer, numa, drift } = this.#options;
    const stored = store.claim(claim.uid);
    if (stored?.state !== 'prepared') return;
    const { devices } = stored;
    const states = new Map(devices.map((device) => [device, this.#stateOf(stored, device)]));
    if (failure !== undefined) {
      const isAway = (device: StoredDevice) =>
        states.get(device) === undefined || (lost ?? devices).some((other) => isSameDevice(other, device));
      const away = devices.filter(isAway);
      for (const device of away.length === 0 ? devices : away) states.delete(device);
    }
    const stateOf = (device: StoredDevice) => states.get(device);
    const statuses = toDeviceStatuses(stored, stateOf, this.#failureOf(stored, failure, stateOf)).map((status) => {
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

  /** Returns the last failure, and forgets it once all VFs have metadata, or none is in a pod any more. */
  #failureOf(
    { identity: { uid }, devices }: StoredClaim,
    failure: string | undefined,
    stateOf: (device: StoredDevice) => DeviceMetadata | undefined,
  ): string | undefined {
    const last = failure ?? this.#failures.get(uid);
    for (const other of this.#failures.keys()) {
      if (this.#options.store.claim(other) === undefined) this.#failures.delete(other);
    }
    const isOver =
      devices.every((device) => stateOf(device) !== undefined) ||
      devices.every(({ attachment }) => attachment === undefined);
    if (last === undefined || isOver) this.#failures.delete(uid);
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
