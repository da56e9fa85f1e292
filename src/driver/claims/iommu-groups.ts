import { type ClaimIdentity, claimName } from '../../framework/metadata/index.ts';
import { DriverError, isUserSpace, type StoredDevice } from '../model/index.ts';
import type { StoredClaims } from '../state/index.ts';
import type { VfControl } from '../vf/index.ts';
import type { PrepareWork } from './prepare-work.ts';

export async function groupsOf(control: VfControl, devices: readonly StoredDevice[]): Promise<PrepareWork['groups']> {
  return await Promise.all(
    devices.map(async (device): Promise<[StoredDevice, string[]]> => [device, await control.groupMembers(device)]),
  );
}

/**
 * Checks that no other claim has a device of the same IOMMU groups in user space. A container with one device of a group can
 * reach all of them. While one is in user space, the kernel binds no other device of the group to a kernel driver (before
 * Linux 6.0 it crashes). Claims that are only being prepared do not count: no container has their devices.
 * @param isToUserSpace whether the devices go to user space; otherwise they get interfaces, and only group members in user
 * space matter
 * @throws DriverError `device-in-use`; StateError
 */
export function checkGroups(
  store: StoredClaims,
  claim: { identity: ClaimIdentity },
  groups: PrepareWork['groups'],
  isToUserSpace = true,
): void {
  for (const [device, member] of groups.flatMap(([each, members]) => members.map((one) => [each, one] as const))) {
    const holder = store.holderOf(member);
    if (holder === undefined || holder.identity.uid === claim.identity.uid || holder.state === 'preparing') continue;
    const isThere = holder.devices.some((each) => each.pciAddress === member && isUserSpace(each));
    if (!isToUserSpace && !isThere) continue;
    const [subject, other] = [claimName(claim.identity), claimName(holder.identity)];
    const [what, how] = isToUserSpace ? ['go to user space', 'prepared'] : ['have an interface', 'in user space'];
    const message = `device ${device.name} cannot ${what} for claim ${subject}: it shares its IOMMU group with ${member}, which is ${how} for claim ${other}`;
    const hint = 'enable ACS in the firmware, so that each VF has a group of its own';
    throw new DriverError('device-in-use', message, { claim: subject, device: device.name, retriable: true, hint });
  }
}
