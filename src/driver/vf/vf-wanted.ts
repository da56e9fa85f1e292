import { defined } from '../../lib/defined.ts';
import { simulatedDriver, type VfSnapshot, type VfWanted } from '../../node/sriov/index.ts';
import type { VfConfig } from '../model/index.ts';

/** Returns the changes to make on the host before the VF moves to a pod. */
export function toVfWanted(config: VfConfig): VfWanted {
  const driver = config.driver === 'kernel' ? 'default' : config.driver;
  return { vf: toProperties(config), ...defined({ driver }) };
}

/**
 * Returns whether configuring a VF may change it. A VF without an interface may be bound to a driver, whatever is wanted. A
 * simulated VF has no settings on the host.
 */
export function mayChange({ driver, vf = {} }: VfWanted, before: VfSnapshot): boolean {
  if (before.driver === simulatedDriver) return false;
  return before.link === undefined || driver !== undefined || Object.keys(vf).length > 0;
}

function toProperties({ macAddress, vf = {} }: VfConfig): NonNullable<VfWanted['vf']> {
  const { vlan, qos = 0, vlanProto, spoofCheck, trust, linkState, minTxRate, maxTxRate } = vf;
  const rate = defined({ minMbps: minTxRate, maxMbps: maxTxRate });
  return defined({
    hardwareAddress: macAddress?.toLowerCase(),
    vlan: vlan === undefined ? undefined : { id: vlan, priority: qos, ...defined({ protocol: vlanProto }) },
    spoofCheck,
    trust,
    linkState,
    rate: Object.keys(rate).length === 0 ? undefined : rate,
  });
}
