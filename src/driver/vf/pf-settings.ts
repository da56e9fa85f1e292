import { type AdminSettings, isEthernetAddress } from '../../node/netlink/index.ts';
import { UnknownVfStateError, type VfAddress } from '../../node/sriov/index.ts';
import type { StoredDevice } from '../model/index.ts';

export interface AdminSettingsReader {
  /** Returns the PF's settings: see `HostVfs`. @throws UnknownVfStateError */
  adminInfo(address: VfAddress): Promise<AdminSettings | undefined>;
}

/** Kinds of facts from the PF that metadata contains. */
type Fact = 'vlan' | 'hardwareAddress';

/**
 * Returns the PF's settings for a device, for its metadata. If the PF does not report the device now, the result is an error
 * for a device that is known to have one of the facts: they must not be missing from the file. Otherwise it is `undefined`.
 * @throws UnknownVfStateError
 */
export async function pfSettingsOf(
  vfs: AdminSettingsReader,
  device: StoredDevice,
  facts: readonly Fact[],
): Promise<AdminSettings | undefined> {
  try {
    const info = await vfs.adminInfo(device);
    // The PF may have lost its interface since it reported or set the fact; the PFs of some cards never have one.
    const { pfAddress, before: { link: _own, ...before } = { vf: {} } } = device;
    const isMissing = facts.some((fact) => isExpected[fact]({ ...device, before }));
    if (info === undefined && pfAddress !== undefined && isMissing) throw UnknownVfStateError.withoutPf(pfAddress);
    return info;
  } catch (error) {
    const isMissing = facts.some((fact) => isExpected[fact](device));
    if (isMissing || !(error instanceof UnknownVfStateError)) throw error;
    return undefined;
  }
}

/** Functions that return whether the claim has set the fact, or the device had it before. */
const isExpected: Readonly<Record<Fact, (device: StoredDevice) => boolean>> = {
  vlan: ({ config, before }) => (config.vf?.vlan ?? before?.vf.vlan?.id ?? 0) !== 0,
  hardwareAddress: ({ config, before }) => {
    const { vf, link } = before ?? {};
    const known = [config.macAddress, vf?.hardwareAddress, link?.hardwareAddress];
    return known.some((each) => each !== undefined && isEthernetAddress(each) && !/^[0:]*$/.test(each));
  },
};
