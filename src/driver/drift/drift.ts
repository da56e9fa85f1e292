import { canonicalCidr, maxReportedAddresses, type VfChange } from '../../node/netlink/index.ts';
import {
  addressToKeep,
  complete,
  difference,
  propertiesOf,
  type VfPropertiesWanted,
  type VfProperty,
} from '../../node/sriov/index.ts';
import { interfaceSettings, isUserSpace, type StoredDevice } from '../model/index.ts';
import { toVfWanted, type VfState } from '../vf/index.ts';

/** Settings that are compared: those of the PF for its VF, and those in the network namespace of the pod. */
export const driftSettings = {
  pf: ['hardwareAddress', 'vlan', 'spoofCheck', 'trust', 'linkState', 'rate'],
  pod: ['macAddress', 'mtu', 'addresses', ...interfaceSettings, 'ethtool', 'duplicateAddresses'],
} as const;

/** A setting of a VF in a pod that differs from class and claim. Texts are for people. */
export interface Drift<Setting extends string = string> {
  setting: Setting;
  wanted: string;
  found: string;
}

export type PfDrift = Drift<VfProperty>;
export type PodDrift = Drift<(typeof driftSettings.pod)[number]>;

/**
 * Returns the settings that the PF must keep for a VF in a pod: settings of class and claim, and the MAC that was pinned for user
 * space. All others belong to the operator.
 */
export function keptBy(device: StoredDevice): VfPropertiesWanted {
  const { before, config, isDisabledForLacp, pfAddress, vfIndex } = device;
  if (before === undefined || pfAddress === undefined || vfIndex === undefined) return {};
  const { linkState, hardwareAddress = pinned(device), ...rest } = toVfWanted(config).vf ?? {};
  return {
    ...rest,
    ...(hardwareAddress !== undefined && { hardwareAddress }),
    // `LacpRelay` sets it until the partner is back.
    ...(linkState !== undefined && isDisabledForLacp !== true && { linkState }),
  };
}

function pinned(device: StoredDevice): string | undefined {
  return isUserSpace(device) && device.before !== undefined ? addressToKeep(device.before) : undefined;
}

/**
 * Returns whether netdra restores a drift at the PF. It does not if the class lets a CNI plugin, or another component,
 * attach the VF, which may have set the value. A claim cannot choose that, since every claim may set `attach`.
 */
export function isRestorable({ config, isAttachOfClaim }: StoredDevice, { setting }: PfDrift, now: VfChange): boolean {
  if ((config.attach ?? 'netlink') !== 'netlink' && isAttachOfClaim !== true) return false;
  // A trusted VF may choose its MAC, and its PF reports that one.
  return setting !== 'hardwareAddress' || (config.vf?.trust ?? now.trust) !== true;
}

/** @param now the PF's report on the VF */
export function pfDriftOf(device: StoredDevice, now: VfChange): PfDrift[] {
  const kept = complete(keptBy(device), now);
  return propertiesOf(difference(now, kept)).map((setting) => ({
    setting,
    wanted: textOf(kept[setting]),
    found: textOf(now[setting]),
  }));
}

function textOf(value: VfChange[VfProperty]): string {
  if (value === undefined) return 'unknown';
  if (typeof value === 'boolean') return value ? 'on' : 'off';
  if (typeof value === 'string') return value;
  if (!('id' in value)) return `${value.minMbps} to ${value.maxMbps} Mbit/s`;
  const { id, priority = 0, protocol = '802.1q' } = value;
  if (id === 0) return 'none';
  const details = [...(priority === 0 ? [] : [`priority ${priority}`]), ...(protocol === '802.1q' ? [] : [protocol])];
  return [id, ...details].join(' ');
}

/**
 * Compares the interface in the pod with the claim, for VFs that netdra configures itself.
 * @param state as just read
 */
export function podDriftOf({ config }: StoredDevice, state: VfState): PodDrift[] {
  if ((config.attach ?? 'netlink') !== 'netlink' || state.interfaceName === undefined) return [];
  const { macAddress, mtu, addresses = [], bond } = config;
  const drifts: PodDrift[] = [];
  const compare = (setting: PodDrift['setting'], wanted: string | undefined, found: string | undefined) => {
    if (wanted !== undefined && found !== undefined && wanted !== found) drifts.push({ setting, wanted, found });
  };
  // A bond has the MAC of one of its members.
  if (bond === undefined) compare('macAddress', macAddress?.toLowerCase(), state.hardwareAddress);
  compare('mtu', mtu?.toString(), state.mtuBytes?.toString());
  const wanted = [...new Set(addresses.map(canonicalCidr))];
  const { duplicates = [], conflicts = new Map<string, string>() } = state;
  const shared = [...duplicates, ...[...conflicts].map(([cidr, hardwareAddress]) => `${cidr} (${hardwareAddress})`)];
  if (shared.length > 0) drifts.push({ setting: 'duplicateAddresses', wanted: 'none', found: shared.join(', ') });
  const lacking = wanted.filter((cidr) => !state.ips.includes(cidr) && !duplicates.includes(cidr));
  // Addresses beyond the limit of reading may include a missing one.
  const isWhole = state.ips.length < maxReportedAddresses && !state.tentative;
  if (isWhole && lacking.length > 0) {
    drifts.push({ setting: 'addresses', wanted: lacking.join(', '), found: 'missing' });
  }
  return [...drifts, ...(state.differences ?? [])];
}

/** Returns `vlan is none instead of 100, spoofCheck is off instead of on`. */
export function describeDrift(drifts: readonly Drift[]): string {
  return drifts.map(({ setting, wanted, found }) => `${setting} is ${found} instead of ${wanted}`).join(', ');
}

/** Returns whether a drift is a duplicate address of the network, not a change in the pod. */
export function isShared({ setting }: Drift): boolean {
  return setting === 'duplicateAddresses';
}
