import { type ClaimIdentity, claimKey, claimName } from '../../framework/metadata/index.ts';
import { Background } from '../../lib/background.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import type { VfInfo } from '../../node/netlink/index.ts';
import { SriovError } from '../../node/sriov/index.ts';
import { StateError, type StoredClaim, type StoredDevice } from '../model/index.ts';
import type { Store } from '../state/index.ts';
import type { AdminSettingsReader, VfControl } from '../vf/index.ts';
import { pfsWithoutLacpPartner } from './device-conditions.ts';
import type { DeviceState } from './device-state.ts';

/** Part of `DeviceList` that the relay uses. */
interface ListedDevices {
  readonly isListed: boolean;
  readonly state: DeviceState;
  readonly vfs: AdminSettingsReader;
}

export interface LacpRelayOptions {
  devices: ListedDevices;
  store: Pick<Store, 'claims' | 'claim' | 'putClaim'>;
  control: VfControl;
  locks: Locks;
  logger: Logger;
}

/**
 * Passes the loss of a PF's LACP partner on to pods: the port has a carrier but delivers nothing, so claimed VFs get the link
 * state `disable`, and bonds or routing in the pods use another path. Only VFs with link state `auto` are changed, which
 * otherwise follow the carrier of the port. Each change is stored with the claim before it is made; unprepare restores the
 * snapshot, which has `auto`. Decision: docs/decisions/0037-vfs-follow-the-lacp-partner.md
 */
export class LacpRelay {
  readonly #options: LacpRelayOptions;
  /** PFs without a partner whose driver cannot set the link state of a VF. A PF is removed once it has a partner again. */
  readonly #unable = new Set<string>();
  /** Logged failures, by the VF's PCI address. */
  readonly #logged = new Map<string, string>();
  /** One task for each claim: a claim's lock may be taken for a minute, and other claims need not wait for it. */
  readonly #background = new Background();
  /** UIDs of claims whose link states are to be updated again. */
  readonly #due = new Set<string>();

  constructor(options: LacpRelayOptions) {
    this.#options = options;
  }

  /**
   * Updates link states. Must be called when conditions, the policy or claims may have changed, and periodically. A failure
   * is logged, and the next call tries again.
   */
  async follow(): Promise<void> {
    await this.#logging(async () => {
      const { devices: list, store } = this.#options;
      // Until the first scan, conditions are unknown: a missing condition does not mean that it is over.
      if (!list.isListed) return;
      const pfs = this.#pfs;
      for (const pf of this.#unable) if (!pfs.has(pf)) this.#unable.delete(pf);
      const isConcerned = ({ isDisabledForLacp, pfAddress = '' }: StoredDevice) =>
        isDisabledForLacp === true || pfs.has(pfAddress);
      const claims = store.claims().filter(({ devices }) => devices.some(isConcerned));
      await Promise.all(claims.map(({ identity }) => this.#begin(identity)));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#background[Symbol.asyncDispose]();
  }

  get #pfs(): Set<string> {
    const { policy, conditions } = this.#options.devices.state;
    return pfsWithoutLacpPartner(policy, conditions);
  }

  async #begin(claim: ClaimIdentity): Promise<void> {
    const { uid } = claim;
    this.#due.add(uid);
    const follow = async () => {
      this.#due.delete(uid);
      await this.#followClaim(uid);
    };
    await this.#background.run(
      uid,
      (signal) => this.#logging(() => this.#options.locks.run(claimKey(claim), follow, signal)),
      () => this.#due.delete(uid),
    );
  }

  /** Runs a task and logs a failure that concerns no single VF, such as an unusable store. */
  async #logging(task: () => Promise<void>): Promise<void> {
    try {
      await task();
    } catch (error) {
      if (!(error instanceof NetdraError)) throw error;
      this.#log('all', 'cannot make links of VFs follow the LACP partner', error);
    }
  }

  async #followClaim(uid: string): Promise<void> {
    const pfs = this.#pfs;
    for (const { pciAddress } of this.#options.store.claim(uid)?.devices ?? []) {
      const claim = this.#options.store.claim(uid);
      const device = claim?.devices.find((each) => each.pciAddress === pciAddress);
      // A claim that is being unprepared is skipped: unprepare restores the snapshot.
      if (claim?.state !== 'prepared' || device === undefined) continue;
      try {
        if (pfs.has(device.pfAddress ?? '') && isFollowing(device)) await this.#silence(claim, device);
        else if (device.isDisabledForLacp) await this.#release(claim, device);
        this.#logged.delete(pciAddress);
      } catch (error) {
        if (!(error instanceof NetdraError) || error instanceof StateError) throw error;
        this.#log(pciAddress, 'cannot make the link of a VF follow the LACP partner', error);
      }
    }
  }

  async #silence(claim: StoredClaim, device: StoredDevice): Promise<void> {
    const { control, logger } = this.#options;
    const { pfAddress = '', name } = device;
    if (this.#unable.has(pfAddress) || (await this.#linkState(device)) !== 'auto') return;
    this.#put(claim, device, true);
    try {
      await control.setLinkState(device, 'disable');
    } catch (error) {
      if (!(error instanceof SriovError && error.code === 'property-unsupported')) throw error;
      this.#put(claim, device, false);
      if (!this.#unable.has(pfAddress)) {
        const message = 'cannot make links of VFs follow the LACP partner: the card cannot set the link state of a VF';
        logger.warn({ pf: pfAddress, err: error }, message);
      }
      this.#unable.add(pfAddress);
      return;
    }
    logger.info(
      { claim: claimName(claim.identity), device: name },
      'set the link of a VF down: its PF has lost the LACP partner',
    );
  }

  /** Restores the link state of a VF. Also called when the policy no longer requests the relay, or the PF has left its bond. */
  async #release(claim: StoredClaim, device: StoredDevice): Promise<void> {
    const { control, logger } = this.#options;
    // Another link state means that the PF was reset, or that an administrator has set it.
    if ((await this.#linkState(device)) === 'disable') await control.setLinkState(device, 'auto');
    this.#put(claim, device, false);
    logger.info({ claim: claimName(claim.identity), device: device.name }, 'VF follows the link of its PF again');
  }

  async #linkState(device: StoredDevice): Promise<VfInfo['linkState']> {
    return (await this.#options.devices.vfs.adminInfo(device))?.linkState;
  }

  #put(claim: StoredClaim, { pciAddress }: StoredDevice, isDisabledForLacp: boolean): void {
    const devices = claim.devices.map(({ isDisabledForLacp: before, ...device }): StoredDevice => {
      const is = device.pciAddress === pciAddress ? isDisabledForLacp : before === true;
      return is ? { ...device, isDisabledForLacp: true } : device;
    });
    this.#options.store.putClaim({ ...claim, devices });
  }

  /** Logs a failure, unless it is the last one that was logged for this VF. */
  #log(of: string, message: string, error: unknown): void {
    const reason = explain(error);
    if (this.#logged.get(of) === reason) return;
    this.#logged.set(of, reason);
    this.#options.logger.warn({ err: error }, message);
  }
}

/** Returns whether the link state was `auto` and the claim requests no other. */
function isFollowing({ config, before }: StoredDevice): boolean {
  return before?.vf.linkState === 'auto' && (config.vf?.linkState ?? 'auto') === 'auto';
}
