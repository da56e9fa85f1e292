import type { ClaimStatusWriter, DeviceStatus } from '../../framework/claimstatus/index.ts';
import type { StatusCondition } from '../../framework/kube/index.ts';
import type { ClaimIdentity, DeviceAttribute, DeviceMetadata } from '../../framework/metadata/index.ts';
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

/** Reports the places of the VFs of prepared claims, in the status of the claims. */
export class StatusReport {
  readonly #options: StatusReportOptions;

  constructor(options: StatusReportOptions) {
    this.#options = options;
  }

  /**
   * @param isSettled `false` if the state will change soon
   * @param failure why the VFs are not in their pod, as a message for users
   */
  report(claim: ClaimIdentity, isSettled = true, failure?: string): void {
    const { store, writer, numa, drift } = this.#options;
    const stored = store.claim(claim.uid);
    if (stored?.state !== 'prepared') return;
    const stateOf = (device: StoredDevice) => this.#stateOf(stored, device);
    const statuses = toDeviceStatuses(stored, failure ?? stateOf).map((status) => {
      const { device } = status;
      const conditions = [numa.conditionOf(claim.uid, device), drift.conditionOf(claim.uid, device)];
      const known = conditions.filter((condition) => condition !== undefined);
      return known.length === 0 ? status : { ...status, conditions: known };
    });
    writer.set(claim, statuses, isSettled);
  }

  /** Reports at the start what was not written before the driver was stopped. */
  reportAttached(): void {
    for (const claim of this.#options.store.claims()) {
      if (claim.devices.some((device) => this.#stateOf(claim, device)?.networkData)) this.report(claim.identity);
    }
  }

  #stateOf({ identity }: StoredClaim, device: StoredDevice): DeviceMetadata | undefined {
    return device.attachment && metadataOf(this.#options.metadata, identity, device);
  }
}

/**
 * Returns the status of a claim's VFs.
 * @param state of the VFs in the pod, from the metadata; or why they are not all there, as a message for users
 */
export function toDeviceStatuses(
  { devices }: ClaimDevices,
  state: string | ((device: StoredDevice) => Partial<DeviceMetadata> | undefined),
): DeviceStatus[] {
  const failure = typeof state === 'string' ? state : undefined;
  return devices.map((device) => {
    const { pool, name, shareId } = device;
    const { networkData, attributes } = (typeof state === 'string' ? undefined : state(device)) ?? {};
    const facts = { pool, device: name, ...defined({ shareId }), data: toData(device, attributes?.bondActive) };
    return networkData !== undefined
      ? { ...facts, ready: true, reason: 'Attached', networkData }
      : {
          ...facts,
          ready: false,
          reason: 'NotAttached',
          message: failure ?? 'the device is not in the network of the pod',
        };
  });
}

/** @param active whether its bond sends and receives through it; absent: it is in none, or that is unknown */
function toData({ pciAddress, config, access }: StoredDevice, active: DeviceAttribute | undefined): object {
  const attach = config.attach ?? 'netlink';
  const bond = config.bond && { name: config.bond.name, ...defined({ active: active?.bool }) };
  return { pciAddress, attach, ...defined({ vlan: config.vf?.vlan, driver: access?.driver, bond }) };
}
