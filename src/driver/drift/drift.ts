import { canonicalCidr, maxReportedAddresses, type VfChange } from '../../node/netlink/index.ts';
import {
  addressToKeep,
  complete,
  difference,
  propertiesOf,
  simulatedDriver,
  type VfPropertiesWanted,
  type VfProperty,
} from '../../node/sriov/index.ts';
import { interfaceSettings, isUserSpace, type StoredDevice } from '../model/index.ts';
import { toVfWanted, type VfState } from '../vf/index.ts';

/** Settings that are compared: at the PF, and in the network namespace of the pod. */
export const driftSettings = {
  pf: ['hardwareAddress', 'vlan', 'spoofCheck', 'trust', 'linkState', 'rate'],
  pod: ['macAddress', 'mtu', 'addresses', ...interfaceSettings, 'ethtool', 'duplicateAddresses'],
} as const;

/** A setting of a VF in a pod that differs from class and claim, with texts for messages. */
export interface Drift<Setting extends string = string> {
  setting: Setting;
  wanted: string;
  found: string;
}

export type PfDrift = Drift<VfProperty>;
export type PodDrift = Drift<(typeof driftSettings.pod)[number]>;

/**
 * Returns the settings that the PF must keep for a VF in a pod: those of class and claim, and the MAC address that was pinned
 * for user space. All other settings belong to the operator.
 */
export function keptBy(device: StoredDevice): VfPropertiesWanted {
  const { before, config, isDisabledForLacp, pfAddress, vfIndex } = device;
  if (before === undefined || pfAddress === undefined || vfIndex === undefined) return {};
  // A simulated PF has no settings: the MAC address is set in the pod only.
  if (before.driver === simulatedDriver) return {};
  const { linkState, hardwareAddress = pinned(device), ...rest } = toVfWanted(config).vf ?? {};
  return {
    ...rest,
    ...(hardwareAddress !== undefined && { hardwareAddress }),
    // While the PF has no LACP partner, `LacpRelay` sets the link state.
    ...(linkState !== undefined && isDisabledForLacp !== true && { linkState }),
  };
}

function pinned(device: StoredDevice): string | undefined {
  return isUserSpace(device) && device.before !== undefined ? addressToKeep(device.before) : undefined;
}

/**
 * Returns whether netdra restores a drift at the PF. It does not if the class lets a CNI plugin or another component attach
 * the VF: that component may have set the value. An `attach` that the claim itself sets makes no difference, so that claims
 * cannot evade the restore.
 */
export function isRestorable({ config, isAttachOfClaim }: StoredDevice, { setting }: PfDrift, now: VfChange): boolean {
  if ((config.attach ?? 'netlink') !== 'netlink' && isAttachOfClaim !== true) return false;
  // A trusted VF may change its MAC address, and the PF reports the changed one.
  return setting !== 'hardwareAddress' || (config.vf?.trust ?? now.trust) !== true;
}

/** Returns the settings at the PF that differ from class and claim. @param now the PF's report on the VF */
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
 * @param state state of the VF that was just read
 */
export function podDriftOf({ config }: StoredDevice, state: VfState): PodDrift[] {
  if ((config.attach ?? 'netlink') !== 'netlink' || state.interfaceName === undefined) return [];
  const { macAddress, mtu, addresses = [], bond } = config;
  const drifts: PodDrift[] = [];
  const compare = (setting: PodDrift['setting'], wanted: string | undefined, found: string | undefined) => {
    if (wanted !== undefined && found !== undefined && wanted !== found) drifts.push({ setting, wanted, found });
  };
  // A bond has the MAC address of one of its members, so it is not compared.
  if (bond === undefined) compare('macAddress', macAddress?.toLowerCase(), state.hardwareAddress);
  compare('mtu', mtu?.toString(), state.mtuBytes?.toString());
  const wanted = [...new Set(addresses.map(canonicalCidr))];
  const { duplicates = [], conflicts = new Map<string, string>() } = state;
  const shared = [...duplicates, ...[...conflicts].map(([cidr, hardwareAddress]) => `${cidr} (${hardwareAddress})`)];
  if (shared.length > 0) drifts.push({ setting: 'duplicateAddresses', wanted: 'none', found: shared.join(', ') });
  const lacking = wanted.filter((cidr) => !state.ips.includes(cidr) && !duplicates.includes(cidr));
  // If the list of addresses was cut off, a missing address may be in the rest.
  const isWhole = state.ips.length < maxReportedAddresses && !state.tentative;
  if (isWhole && lacking.length > 0) {
    drifts.push({ setting: 'addresses', wanted: lacking.join(', '), found: 'missing' });
  }
  return [...drifts, ...(state.differences ?? [])];
}

/** Formats drifts: `vlan is none instead of 100, spoofCheck is off instead of on`. */
export function describeDrift(drifts: readonly Drift[]): string {
  return drifts.map(({ setting, wanted, found }) => `${setting} is ${found} instead of ${wanted}`).join(', ');
}

/** Returns whether a drift is an address that another host has, too, and not a change in the pod. */
export function isShared({ setting }: Drift): boolean {
  return setting === 'duplicateAddresses';
}
