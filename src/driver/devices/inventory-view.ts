import { claimName } from '../../framework/metadata/index.ts';
import type { DeviceTaint } from '../../framework/resourceslice/index.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import {
  deviceAttributes,
  type Exclusion,
  type ExclusionReason,
  explainExclusion,
  explainNothingOffered,
  type InventoryAttribute,
  type InventoryReport,
  type NetworkDevice,
} from '../../node/inventory/index.ts';
import type { ClaimDevices } from '../model/index.ts';
import type { ConditionName, DeviceCondition, DeviceConditions } from './device-conditions.ts';

/** Devices that the node offers, and devices that it withholds, with reasons. */
export interface InventoryView {
  devices: OfferedDevice[];
  excluded: ExcludedDevice[];
  /** Messages about devices that could not be read. */
  problems: string[];
  /** Messages about policy rules that select nothing, and about device plugins whose devices are unknown. */
  warnings: string[];
  /** Reason why the node offers no device; absent if it offers some. */
  whyNothing?: string;
  /** Cards whose VFs the driver will enable when it starts, and which are not listed yet. Empty if the driver runs. */
  switchedOnAtStart: { pciAddress: string; numVfs: number }[];
}

export interface OfferedDevice {
  name: string;
  /** Claim that has the device, as `namespace/name`. */
  claim?: string;
  /** Attributes as in the ResourceSlice. */
  attributes: Record<string, InventoryAttribute>;
  interfaceName?: string;
  /** Taints of the device: only new claims that tolerate them get it. */
  taints?: DeviceTaint[];
  /** Faults of the device; absent: none. */
  conditions?: { condition: ConditionName; message: string }[];
}

export interface ExcludedDevice extends Omit<Exclusion, 'reason'> {
  reason: ExclusionReason | ConditionName;
  /** Explanation of the reason, for operators. */
  explanation: string;
}

/** Inputs of a view. */
export interface ViewedDevices {
  report: InventoryReport;
  /** Devices of the report; claimed devices as they were first seen. */
  devices: readonly NetworkDevice[];
  conditions: Pick<DeviceConditions, 'of' | 'taintsOf' | 'withdrawals'>;
  claims: readonly ClaimDevices[];
  /** Reason why a newer policy is not in force. */
  policyFault?: string;
}

/** Describes which devices the node offers, and why it withholds others. */
export function viewInventory({ report, devices, conditions, claims, policyFault }: ViewedDevices): InventoryView {
  const { excluded, problems, warnings } = report;
  const withdrawn = conditions.withdrawals(devices);
  const offered = devices.filter(({ pciAddress }) => !withdrawn.has(pciAddress));
  return {
    devices: offered.map((device) => {
      const { name, interfaceName, pciAddress } = device;
      const facts = defined({ claim: holderOf(claims, pciAddress), interfaceName });
      const wrong = conditions
        .of(device)
        .map((condition) => ({ condition: condition.name, message: condition.message }));
      const health = wrong.length === 0 ? {} : { conditions: wrong };
      return { name, ...facts, attributes: deviceAttributes(device), ...conditions.taintsOf(device), ...health };
    }),
    excluded: [
      ...excluded.map((exclusion) => ({ ...exclusion, explanation: explainExclusion(exclusion) })),
      ...devices.flatMap((device) => toExcluded(device, withdrawn.get(device.pciAddress)) ?? []),
    ],
    problems: [
      ...problems.map(explain),
      ...(policyFault === undefined ? [] : [`${policyFault}; the last valid policy stays in force`]),
    ],
    warnings,
    ...(devices.length === 0 && { whyNothing: explainNothingOffered(report) }),
    switchedOnAtStart: [],
  };
}

function holderOf(claims: ViewedDevices['claims'], pciAddress: string): string | undefined {
  const holder = claims.find(({ devices }) => devices.some((device) => device.pciAddress === pciAddress));
  return holder && claimName(holder.identity);
}

function toExcluded(device: NetworkDevice, withdrawal: DeviceCondition | undefined): ExcludedDevice | undefined {
  if (withdrawal === undefined) return undefined;
  const { pciAddress, interfaceName } = device;
  const pf = device.kind === 'vf' ? { pfAddress: device.pfAddress } : {};
  const { name: reason, message: explanation } = withdrawal;
  return { pciAddress, ...pf, ...defined({ interfaceName }), reason, explanation };
}
