import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { isVfio, SriovError, type VfAccess, type VfSnapshot } from '../../node/sriov/index.ts';
import { findUserSpaceProblems } from '../api/config-rules.ts';
import { invalidConfig, type StoredDevice, type UnrestoredVf } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import { cniDeletionKey } from '../vf/cni-attacher.ts';
import { restore, type VfControl, type VfDetacher } from '../vf/index.ts';
import { toVfWanted } from '../vf/vf-wanted.ts';
import { checkGroups, groupsOf } from './iommu-groups.ts';

export interface DeviceWorkOptions {
  store: StoredClaims;
  locks: Locks;
  attachments: VfDetacher;
  control: VfControl;
  logger: Logger;
}

/** Steps of prepare and unprepare for a single VF on the host: snapshot, configure, access, restore. */
export class DeviceWork {
  readonly #options: DeviceWorkOptions;
  /** Reasons why VFs have no interface although their claim needs it, by PCI address. */
  readonly #withoutInterface = new Map<string, string>();

  constructor(options: DeviceWorkOptions) {
    this.#options = options;
  }

  /** Waits for running CNI DELs that may still change the devices for a former pod. Each DEL has a deadline. */
  async awaitDeletions(devices: readonly StoredDevice[]): Promise<void> {
    const keys = devices.map(({ pciAddress }) => cniDeletionKey(pciAddress));
    using _ = await this.#options.locks.acquireAll(keys);
  }

  /**
   * Returns the device with its snapshot; an earlier snapshot is kept. Takes one even if the claim changes nothing through
   * the PF, since a CNI plugin may do so.
   * @throws DriverError `config-invalid` for an MTU that the VF cannot have; SriovError, NetlinkError
   */
  async snapshot(claim: AllocatedClaim, device: StoredDevice): Promise<StoredDevice> {
    const byOthers = (device.config.attach ?? 'netlink') !== 'netlink';
    const wanted = toVfWanted(device.config);
    const options = { wanted, byOthers, ...defined({ withHostConfig: device.config.keepHostConfig }) };
    const before = device.before ?? (await this.#options.control.snapshot(device, options));
    await this.#checkMtu(claim, device, before);
    return { ...device, before };
  }

  /** Configures a VF on the host as its claim requests. @throws DriverError `device-in-use`; SriovError, NetlinkError */
  async configure(claim: { identity: ClaimIdentity }, device: StoredDevice): Promise<void> {
    const { store, control } = this.#options;
    const { before, pciAddress } = device;
    const wanted = toVfWanted(device.config);
    if (before === undefined) return;
    // While the PF has no LACP partner, the VF's link stays down; when the partner is back, the link gets `auto`.
    if (device.isDisabledForLacp) delete wanted.vf?.linkState;
    const isToUserSpace = wanted.driver !== undefined && wanted.driver !== 'default';
    const getsInterface = before.driver === undefined || (isVfio(before.driver) && wanted.driver === 'default');
    if (isToUserSpace || getsInterface) {
      checkGroups(store, claim, await groupsOf(control, [device]), isToUserSpace);
    }
    try {
      await control.configure(device, wanted, before);
      this.#withoutInterface.delete(pciAddress);
    } catch (error) {
      const isUnusable = error instanceof SriovError && error.code === 'interface-missing';
      if (isUnusable) this.#withoutInterface.set(pciAddress, explain(error));
      throw error;
    }
  }

  /** Returns how containers access a configured VF. @throws DriverError `config-invalid`; SriovError */
  async access(claim: AllocatedClaim, device: StoredDevice): Promise<VfAccess> {
    const { vhost = false, rdma = false } = device.config;
    const access = await this.#options.control.access(device, { vhost, rdma });
    if (access.vfio === undefined) return access;
    // The driver is checked again: an administrator may have bound the VF to vfio, and the claim does not name a driver.
    const problems = findUserSpaceProblems(device.config, access.driver ?? 'vfio');
    if (problems.length > 0) throw invalidConfig(claim, problems);
    return access;
  }

  /**
   * Detaches and restores the devices of a claim. @returns the devices that could not be restored and are unavailable until
   * then
   */
  async restoreAll(identity: ClaimIdentity, devices: readonly StoredDevice[]): Promise<UnrestoredVf[]> {
    const { attachments, control, logger } = this.#options;
    const unrestored: UnrestoredVf[] = [];
    for (const stored of devices) {
      const device = { ...stored };
      const fields = { claim: claimName(identity), device: device.name };
      const lacking = this.#withoutInterface.get(device.pciAddress);
      try {
        await restore({ attachments, control }, identity.uid, device);
        if (lacking === undefined) continue;
        logger.error(
          { ...fields, reason: lacking },
          'cannot give a VF an interface: no claim gets the VF until that succeeds',
        );
        unrestored.push({ device: { ...device, lacksInterface: true }, reason: lacking });
      } catch (error) {
        logger.error({ ...fields, err: error }, 'cannot restore a VF: no claim gets the VF until it is restored');
        unrestored.push({ device, reason: explain(error) });
      }
    }
    return unrestored;
  }

  /** Drops the reasons of VFs that the store has recorded as unrestored. */
  stored(unrestored: readonly UnrestoredVf[]): void {
    for (const { device } of unrestored) this.#withoutInterface.delete(device.pciAddress);
  }

  /**
   * Checks the MTU against the limits of the VF and its PF. A VF without an interface has no limits: its MTU is only
   * reported. @throws DriverError `config-invalid`
   */
  async #checkMtu(claim: AllocatedClaim, device: StoredDevice, before: VfSnapshot): Promise<void> {
    const { mtu, driver = before.driver ?? 'kernel' } = device.config;
    if (mtu === undefined || isVfio(driver)) return;
    for (const { minBytes, maxBytes, of } of await this.#options.control.mtuLimits(device)) {
      if (mtu >= minBytes && mtu <= maxBytes) continue;
      const limits = `is outside of ${minBytes} to ${maxBytes}, the range that ${of} allows for device ${device.name}`;
      throw invalidConfig(claim, [`mtu: ${mtu} ${limits}; a VF can have no more than its PF`]);
    }
  }
}
