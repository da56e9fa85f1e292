import type { InventoryReport, NetworkDevice } from '../../node/inventory/index.ts';
import { conditionNames, type DeviceConditions } from './device-conditions.ts';

/** Device counts of a PF. */
export interface PfCounts {
  /** Interface of the PF; without an interface, the PCI address. */
  pf: string;
  pciAddress: string;
  /**
   * Whether the PF has a carrier; absent if the PF has no interface, or if its interface is down. Becomes `true` at the
   * earliest ten seconds after the carrier returns.
   */
  hasCarrier?: boolean;
  /** Set if the interface of the PF is down while its VFs are offered. */
  isDown?: true;
  /** Numbers of the PF's VFs: in slices, claimed, available to new claims, withheld from new claims, and hung. */
  vfs: Record<'offered' | 'used' | 'free' | 'withheld' | 'hung', number>;
}

/** Device counts of the node. */
export interface DeviceCounts {
  /** Numbers of devices that are withheld from new claims, by reason: an exclusion, or a condition with a taint. */
  withheld: Record<string, number>;
  /** Numbers of devices in each condition; 0 for conditions that no device has. */
  inCondition: Record<string, number>;
  /** Number of devices that are available to new claims. */
  free: number;
  pfs: PfCounts[];
}

export interface CountedDevices {
  report: InventoryReport;
  devices: readonly NetworkDevice[];
  conditions: Pick<DeviceConditions, 'counts' | 'hung' | 'isHung' | 'of' | 'withdrawals'>;
  /** Number of VFs that could not be restored after their last claim. */
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
  // Conditions are read more often than the report is made, so they are newer.
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
