import { type AdminSettings, isEthernetAddress } from '../../node/netlink/index.ts';
import { UnknownVfStateError, type VfAddress } from '../../node/sriov/index.ts';
import type { StoredDevice } from '../model/index.ts';

export interface AdminSettingsReader {
  /** See `HostVfs`. @throws UnknownVfStateError */
  adminInfo(address: VfAddress): Promise<AdminSettings | undefined>;
}

/** Facts of the PF in metadata. */
type Fact = 'vlan' | 'hardwareAddress';

/**
 * Returns the PF's settings for a device, for its metadata. If the PF does not report them now, a fact that the device is
 * known to have must not be missing in the file; a device without such a fact is described without asking again.
 * @throws UnknownVfStateError
 */
export async function pfSettingsOf(
  vfs: AdminSettingsReader,
  device: StoredDevice,
  facts: readonly Fact[],
): Promise<AdminSettings | undefined> {
  try {
    const info = await vfs.adminInfo(device);
    // The PF has lost its interface since it reported or set the fact; some have none at any time.
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

/** Returns whether the claim has set the fact, or the device had it before. */
const isExpected: Readonly<Record<Fact, (device: StoredDevice) => boolean>> = {
  vlan: ({ config, before }) => (config.vf?.vlan ?? before?.vf.vlan?.id ?? 0) !== 0,
  hardwareAddress: ({ config, before }) => {
    const { vf, link } = before ?? {};
    const known = [config.macAddress, vf?.hardwareAddress, link?.hardwareAddress];
    return known.some((each) => each !== undefined && isEthernetAddress(each) && !/^[0:]*$/.test(each));
  },
};
