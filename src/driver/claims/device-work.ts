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

/** The work of prepare and unprepare on a single VF on the host: snapshot, configure, access, restore. */
export class DeviceWork {
  readonly #options: DeviceWorkOptions;
  /** Reasons why VFs have no interface although their claim needs one, by PCI address. */
  readonly #withoutInterface = new Map<string, string>();

  constructor(options: DeviceWorkOptions) {
    this.#options = options;
  }

  /** Waits until no CNI DEL for a former pod changes the devices any more: such a DEL has a deadline. */
  async awaitDeletions(devices: readonly StoredDevice[]): Promise<void> {
    const keys = devices.map(({ pciAddress }) => cniDeletionKey(pciAddress));
    using _ = await this.#options.locks.acquireAll(keys);
  }

  /**
   * Returns the device with its snapshot. Takes one even if the claim changes nothing through the PF, since a CNI plugin
   * may. Keeps an earlier snapshot.
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

  /** Configures a VF from outside as its claim requests. @throws DriverError `device-in-use`; SriovError, NetlinkError */
  async configure(claim: { identity: ClaimIdentity }, device: StoredDevice): Promise<void> {
    const { store, control } = this.#options;
    const { before, pciAddress } = device;
    const wanted = toVfWanted(device.config);
    if (before === undefined) return;
    // It gets `auto` when the LACP partner of its PF is back.
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
    // Checked again, since an administrator may have bound the VF to vfio while the claim leaves the driver alone.
    const problems = findUserSpaceProblems(device.config, access.driver ?? 'vfio');
    if (problems.length > 0) throw invalidConfig(claim, problems);
    return access;
  }

  /** Detaches and restores the devices of a claim. @returns devices that no claim may get until they are restored */
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

  /** Forgets reasons that the store has now, with the VFs that could not be restored. */
  stored(unrestored: readonly UnrestoredVf[]): void {
    for (const { device } of unrestored) this.#withoutInterface.delete(device.pciAddress);
  }

  /** @throws DriverError `config-invalid`; without an interface the MTU is only reported */
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
