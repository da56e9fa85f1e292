import type { VfChange } from '../netlink/index.ts';
import type { VfWanted } from '../sriov/index.ts';
import type { VfConfig } from './config.ts';

/** Whether the VF goes to user space: it has no interface then. */
export function isUserSpace(config: VfConfig): boolean {
  return config.driver === 'vfio-pci';
}

/** What has to be changed of the VF from outside, before it goes to a pod; `undefined` if nothing has. */
export function toVfWanted(config: VfConfig): VfWanted | undefined {
  const vf = toVfChange(config);
  const driver = config.driver === 'kernel' ? 'default' : config.driver;
  if (driver === undefined && Object.keys(vf).length === 0) return undefined;
  return { vf, ...(driver === undefined ? {} : { driver }) };
}

function toVfChange({ macAddress, vf = {} }: VfConfig): VfChange {
  const { vlan, qos = 0, vlanProto, spoofCheck, trust, linkState, minTxRate, maxTxRate } = vf;
  const change: VfChange = {};
  if (macAddress !== undefined) change.hardwareAddress = macAddress.toLowerCase();
  if (vlan !== undefined) {
    change.vlan = { id: vlan, priority: qos, ...(vlanProto === undefined ? {} : { protocol: vlanProto }) };
  }
  if (spoofCheck !== undefined) change.spoofCheck = spoofCheck;
  if (trust !== undefined) change.trust = trust;
  if (linkState !== undefined) change.linkState = linkState;
  if (minTxRate !== undefined || maxTxRate !== undefined) {
    change.rate = { minMbps: minTxRate ?? 0, maxMbps: maxTxRate ?? 0 };
  }
  return change;
}
