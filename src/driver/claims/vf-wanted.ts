import type { VfWanted } from '../../node/sriov/index.ts';
import type { VfConfig } from '../state/index.ts';

/** Changes to the VF from outside, made before it moves to a pod; `undefined` if there are none. */
export function toVfWanted(config: VfConfig): VfWanted | undefined {
  const vf = toProperties(config);
  const driver = config.driver === 'kernel' ? 'default' : config.driver;
  if (driver === undefined && Object.keys(vf).length === 0) return undefined;
  return { vf, ...(driver === undefined ? {} : { driver }) };
}

function toProperties({ macAddress, vf = {} }: VfConfig): NonNullable<VfWanted['vf']> {
  const { vlan, qos = 0, vlanProto, spoofCheck, trust, linkState, minTxRate, maxTxRate } = vf;
  const rate = {
    ...(minTxRate === undefined ? {} : { minMbps: minTxRate }),
    ...(maxTxRate === undefined ? {} : { maxMbps: maxTxRate }),
  };
  return {
    ...(macAddress === undefined ? {} : { hardwareAddress: macAddress.toLowerCase() }),
    ...(vlan === undefined
      ? {}
      : { vlan: { id: vlan, priority: qos, ...(vlanProto === undefined ? {} : { protocol: vlanProto }) } }),
    ...(spoofCheck === undefined ? {} : { spoofCheck }),
    ...(trust === undefined ? {} : { trust }),
    ...(linkState === undefined ? {} : { linkState }),
    ...(Object.keys(rate).length === 0 ? {} : { rate }),
  };
}
