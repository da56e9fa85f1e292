import type { InventoryReport, NetworkDevice } from '../../node/inventory/index.ts';
import { conditionNames, type DeviceConditions } from './device-conditions.ts';

/** Numbers of a PF for operators. */
export interface PfCounts {
  /** Its interface; without one, the PCI address. */
  pf: string;
  pciAddress: string;
  /**
   * Whether it has a carrier; absent if the PF has no interface, or one that is down. Becomes true ten seconds after the
   * carrier returns.
   */
  hasCarrier?: boolean;
  /** Set if its interface is down and its VFs are offered. */
  isDown?: true;
  /** Numbers of its VFs: in slices, claimed, available to new claims, withheld from new claims, and hung. */
  vfs: Record<'offered' | 'used' | 'free' | 'withheld' | 'hung', number>;
}

/** Numbers of devices. */
export interface DeviceCounts {
  /** Numbers of devices that new claims cannot get, by reason: that of an exclusion, or a condition with a taint. */
  withheld: Record<string, number>;
  /** Numbers of devices in each condition, also of conditions without any. */
  inCondition: Record<string, number>;
  /** Number of devices that new claims can get. */
  free: number;
  pfs: PfCounts[];
}

export interface CountedDevices {
  report: InventoryReport;
  devices: readonly NetworkDevice[];
  conditions: Pick<DeviceConditions, 'counts' | 'hung' | 'isHung' | 'of' | 'withdrawals'>;
  /** Number of VFs that are not restored after their last claim. */
  unrestored: number;
  /** Devices that are prepared for claims, by PCI address. */
  held: { has(pciAddress: string): boolean };
}

export function countDevices(counted: CountedDevices): DeviceCounts {
  const { report, devices, conditions } = counted;
  const { unrestored: _unrestored, hung: _hung, ...ofCards } = conditions.counts(devices, 'withheld');
  const ofReason = Map.groupBy(report.excluded, ({ reason }) => reason);
  const excluded = Object.fromEntries([...ofReason].map(([reason, found]) => [reason, found.length]));
  return {
    withheld: { unrestored: counted.unrestored, hung: conditions.hung.length, ...ofCards, ...excluded },
    inCondition: { ...Object.fromEntries(conditionNames.map((name) => [name, 0])), ...conditions.counts(devices) },
    free: devices.filter((device) => isFree(device, counted)).length,
    pfs: report.pfs.map((pf) => countVfs(pf, counted)),
  };
}

function isTainted(device: NetworkDevice, { conditions }: CountedDevices): boolean {
  return conditions.of(device).some(({ effect }) => effect !== 'None');
}

function isFree(device: NetworkDevice, counted: CountedDevices): boolean {
  return !counted.held.has(device.pciAddress) && !isTainted(device, counted);
}

function countVfs({ pciAddress, names: [name] }: InventoryReport['pfs'][number], counted: CountedDevices): PfCounts {
  const { report, devices, conditions, held } = counted;
  const vfs = devices.filter((device) => device.kind === 'vf' && device.pfAddress === pciAddress);
  const withdrawn = conditions.withdrawals(vfs);
  const isSeen = report.readings.some((each) => each.condition === 'no-carrier' && each.pciAddress === pciAddress);
  // Read more often than the report is made.
  const names = conditions.of({ pciAddress }).map((each) => each.name);
  const isLost = names.includes('no-carrier');
  return {
    pf: name ?? pciAddress,
    pciAddress,
    ...(isSeen || isLost ? { hasCarrier: !isLost } : {}),
    ...(names.includes('pf-down') ? { isDown: true as const } : {}),
    vfs: {
      offered: vfs.length - withdrawn.size,
      used: vfs.filter((vf) => held.has(vf.pciAddress)).length,
      free: vfs.filter((vf) => isFree(vf, counted)).length,
      withheld:
        vfs.filter((vf) => isTainted(vf, counted)).length +
        report.excluded.filter(({ pfAddress }) => pfAddress === pciAddress).length,
      hung: vfs.filter((vf) => conditions.isHung(vf.pciAddress)).length,
    },
  };
}
