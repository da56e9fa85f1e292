import { claimName } from '../../framework/metadata/index.ts';
import type { DeviceTaint } from '../../framework/resourceslice/index.ts';
import { defined } from '../../lib/defined.ts';
import { explain } from '../../lib/errors.ts';
import {
  deviceAttributes,
  type Exclusion,
  type ExclusionReason,
  explainExclusion,
  type InventoryAttribute,
  type InventoryReport,
  type NetworkDevice,
  whyNothing,
} from '../../node/inventory/index.ts';
import type { StoredClaim } from '../state/index.ts';
import type { ConditionName, DeviceCondition, DeviceConditions } from './device-conditions.ts';

/** Devices that the node offers, and those that it does not offer. */
export interface InventoryView {
  devices: OfferedDevice[];
  excluded: ExcludedDevice[];
  /** Messages about what cannot be read. */
  problems: string[];
  /** Rules of the policy that select nothing. */
  warnings: string[];
  /** Why no device is offered; absent: some are. */
  whyNothing?: string;
  /** Cards whose VFs the policy switches on when the driver starts; therefore these are not listed. Empty: the driver runs. */
  switchedOnAtStart: { pciAddress: string; numVfs: number }[];
}

export interface OfferedDevice {
  name: string;
  /** The claim that holds it, as `namespace/name`. */
  claim?: string;
  /** As in the ResourceSlice. */
  attributes: Record<string, InventoryAttribute>;
  interfaceName?: string;
  /** New claims that do not tolerate them do not get it. */
  taints?: DeviceTaint[];
  /** What is wrong with it; absent: nothing. */
  conditions?: { condition: ConditionName; message: string }[];
}

export interface ExcludedDevice extends Omit<Exclusion, 'reason'> {
  reason: ExclusionReason | ConditionName;
  /** For people. */
  explanation: string;
}

/** What a view is made of. */
export interface ViewedDevices {
  report: InventoryReport;
  /** Of the report, or as they were first seen, for devices of claims. */
  devices: readonly NetworkDevice[];
  conditions: Pick<DeviceConditions, 'of' | 'taintsOf' | 'withdrawals'>;
  claims: readonly Pick<StoredClaim, 'identity' | 'devices'>[];
  /** Why a newer policy is not in force. */
  policyFault?: string;
}

/** Shows devices to people: those that are offered, and why others are not. */
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
    ...(devices.length === 0 && { whyNothing: whyNothing(report) }),
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
