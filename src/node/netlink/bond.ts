import { getU8, getU16, getU32, putU32 } from 'netlink';
import { type Attribute, Attributes } from './attributes.ts';
import { parseIpAddress } from './cidr.ts';

/** Bond modes. The position of a mode is its number: `BOND_MODE_*` of Linux `if_bonding.h`. */
export const bondModes = [
  'balance-rr',
  'active-backup',
  'balance-xor',
  'broadcast',
  '802.3ad',
  'balance-tlb',
  'balance-alb',
] as const;
export type BondMode = (typeof bondModes)[number];

/** Policies for the bond's hardware address when its active member changes: `BOND_FOM_*` of Linux `bonding.h`. */
export const failOverMacs = ['none', 'active', 'follow'] as const;
export type FailOverMac = (typeof failOverMacs)[number];

/** Headers that decide which member sends a packet: `BOND_XMIT_POLICY_*` of Linux `if_bonding.h`. */
export const xmitHashPolicies = ['layer2', 'layer3+4', 'layer2+3', 'encap2+3', 'encap3+4', 'vlan+srcmac'] as const;
export type XmitHashPolicy = (typeof xmitHashPolicies)[number];

/** Rates at which the partner sends LACP frames, every 30 s or every second: `AD_LACP_*` of Linux `bond_3ad.h`. */
export const lacpRates = ['slow', 'fast'] as const;
export type LacpRate = (typeof lacpRates)[number];

/** Criteria for choosing among several aggregators: `BOND_AD_*` of Linux `bond_3ad.h`. */
export const adSelects = ['stable', 'bandwidth', 'count'] as const;
export type AdSelect = (typeof adSelects)[number];

/** Conditions for the bond to return to its primary member: `BOND_PRI_RESELECT_*` of Linux `bonding.h`. */
export const primaryReselects = ['always', 'better', 'failure'] as const;
export type PrimaryReselect = (typeof primaryReselects)[number];

/** `IFLA_BOND_*` of Linux `if_link.h`. */
const BondAttribute = {
  mode: 1,
  miimon: 3,
  arpInterval: 7,
  arpTargets: 8,
  primary: 11,
  primaryReselect: 12,
  failOverMac: 13,
  xmitHashPolicy: 14,
  lacpRate: 21,
  adSelect: 22,
} as const;
/** `IFLA_BOND_SLAVE_*` of Linux `if_link.h`. */
const MemberAttribute = { state: 1, miiStatus: 2, partnerState: 8 } as const;
/** `BOND_STATE_ACTIVE` and `BOND_LINK_UP`. */
const active = 0;
const linkUp = 0;
/** `LACP_STATE_SYNCHRONIZATION`. Cleared when the partner's LACPDUs do not arrive in time. Source: 802.1AX 6.4.2.3. */
const partnerInSync = 0x8;

/** Options of a bond. They cannot change once the bond has a member. */
export interface BondOptions {
  mode: BondMode;
  /** Interval between checks of the members' links, ms. Absent: the bond uses ARP probes instead. */
  miimonMs?: number;
  /** Interval between ARP probes of the hosts in `arpTargets`, ms. */
  arpIntervalMs?: number;
  /** IPv4 addresses of the hosts to probe. */
  arpTargets?: string[];
  /** Condition for returning to the primary member; only for `active-backup`, `balance-tlb` and `balance-alb`. */
  primaryReselect?: PrimaryReselect;
  /** Policy for the bond's hardware address; only for `active-backup`. */
  failOverMac?: FailOverMac;
  xmitHashPolicy?: XmitHashPolicy;
  /** Rate of the partner's LACP frames; only for `802.3ad`. */
  lacpRate?: LacpRate;
  adSelect?: AdSelect;
}

/** Encodes `IFLA_INFO_DATA` of a new bond. The mode comes first, as in the kernel's own order. */
export function encodeBond(options: BondOptions): Attribute[] {
  const { mode, miimonMs, arpIntervalMs, arpTargets = [], failOverMac, xmitHashPolicy, lacpRate, adSelect } = options;
  const attributes: Attribute[] = [{ type: BondAttribute.mode, value: Buffer.of(bondModes.indexOf(mode)) }];
  const addPosition = <T>(type: number, names: readonly T[], name: T | undefined) => {
    if (name !== undefined) attributes.push({ type, value: Buffer.of(names.indexOf(name)) });
  };
  if (miimonMs !== undefined) attributes.push({ type: BondAttribute.miimon, value: putU32(miimonMs) });
  if (arpIntervalMs !== undefined) attributes.push({ type: BondAttribute.arpInterval, value: putU32(arpIntervalMs) });
  if (arpTargets.length > 0) {
    const value = arpTargets.map((address, type) => ({ type, value: parseIpAddress(address).octets }));
    attributes.push({ type: BondAttribute.arpTargets, value });
  }
  addPosition(BondAttribute.primaryReselect, primaryReselects, options.primaryReselect);
  addPosition(BondAttribute.failOverMac, failOverMacs, failOverMac);
  addPosition(BondAttribute.xmitHashPolicy, xmitHashPolicies, xmitHashPolicy);
  addPosition(BondAttribute.lacpRate, lacpRates, lacpRate);
  addPosition(BondAttribute.adSelect, adSelects, adSelect);
  return attributes;
}

/** Encodes `IFLA_INFO_DATA` that makes a member the primary one of its bond. @param index index of the member */
export function encodePrimary(index: number): Attribute[] {
  return [{ type: BondAttribute.primary, value: putU32(index) }];
}

/** Returns the index of a bond's primary member. @param data `IFLA_INFO_DATA` of the bond */
export function decodePrimary(data: Buffer): number | undefined {
  const primary = new Attributes(data).get(BondAttribute.primary);
  return primary && getU32(primary);
}

/** Facts about a link that is a member of a bond. */
export interface BondMember {
  /** Whether the bond sends and receives through the link. */
  isActiveMember?: boolean;
  /** Whether the link's LACP partner is present and in sync; only in mode 802.3ad. */
  lacpPartnerInSync?: boolean;
}

/** Decodes a bond's data about a member. @param data `IFLA_INFO_SLAVE_DATA` */
export function decodeMember(data: Buffer = Buffer.alloc(0)): BondMember {
  const attributes = new Attributes(data);
  const is = (type: number, wanted: number) => {
    const value = attributes.get(type);
    return value !== undefined && getU8(value) === wanted;
  };
  const partner = attributes.get(MemberAttribute.partnerState);
  return {
    isActiveMember: is(MemberAttribute.state, active) && is(MemberAttribute.miiStatus, linkUp),
    ...(partner !== undefined && { lacpPartnerInSync: (getU16(partner) & partnerInSync) !== 0 }),
  };
}
