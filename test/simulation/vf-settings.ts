import type { VfChange, VfInfo } from '../../src/node/netlink/index.ts';

/** A PF's settings for a VF; a property that its driver does not report is absent. */
export interface VfSettings extends Omit<VfInfo, 'vfIndex' | 'hardwareAddress' | 'vlan'> {
  hardwareAddress: string | undefined;
  vlan: VfInfo['vlan'] | undefined;
}

export function defaultVfSettings(): VfSettings {
  return {
    hardwareAddress: undefined,
    vlan: undefined,
    spoofCheck: true,
    trust: false,
    linkState: 'auto',
    minTxRateMbps: 0,
    maxTxRateMbps: 0,
  };
}

export function viewOfSettings(vfIndex: number, { hardwareAddress, vlan, ...rest }: VfSettings): VfInfo {
  return {
    vfIndex,
    ...rest,
    ...(hardwareAddress === undefined ? {} : { hardwareAddress }),
    ...(vlan === undefined ? {} : { vlan: { protocol: '802.1q', ...vlan } }),
  };
}

export function changeSettings(settings: VfSettings, change: VfChange): void {
  const { hardwareAddress, vlan, rate, spoofCheck, trust, linkState } = change;
  if (hardwareAddress !== undefined) {
    settings.hardwareAddress = hardwareAddress === '00:00:00:00:00:00' ? undefined : hardwareAddress.toLowerCase();
  }
  if (vlan !== undefined) settings.vlan = vlan.id === 0 ? undefined : tagOf(vlan);
  if (spoofCheck !== undefined) settings.spoofCheck = spoofCheck;
  if (trust !== undefined) settings.trust = trust;
  if (linkState !== undefined) settings.linkState = linkState;
  if (rate !== undefined) {
    settings.minTxRateMbps = rate.minMbps;
    settings.maxTxRateMbps = rate.maxMbps;
  }
}

function tagOf({ id, priority = 0, protocol = '802.1q' }: NonNullable<VfChange['vlan']>): VfInfo['vlan'] {
  return { id, priority, ...(protocol === '802.1q' ? {} : { protocol }) };
}
