import { getU8, getU16, putU32 } from 'netlink';
import { type Attribute, Attributes } from './attributes.ts';

/** `BOND_MODE_*` of Linux `if_bonding.h`: the position is the number. */
export const bondModes = ['balance-rr', 'active-backup', 'balance-xor', 'broadcast', '802.3ad'] as const;
export type BondMode = (typeof bondModes)[number];

/** `BOND_FOM_*` of Linux `bonding.h`: which hardware address the bond has when its active member changes. */
export const failOverMacs = ['none', 'active', 'follow'] as const;
export type FailOverMac = (typeof failOverMacs)[number];

/** `IFLA_BOND_*` of Linux `if_link.h`. */
const BondAttribute = { mode: 1, miimon: 3, failOverMac: 13 } as const;
/** `IFLA_BOND_SLAVE_*`. */
const MemberAttribute = { state: 1, miiStatus: 2, partnerState: 8 } as const;
/** `BOND_STATE_ACTIVE` and `BOND_LINK_UP`. */
const active = 0;
const linkUp = 0;
/** `LACP_STATE_SYNCHRONIZATION`: cleared as soon as the partner's LACPDUs fail to arrive in time. Source: 802.1AX 6.4.2.3. */
const partnerInSync = 0x8;

/** How a bond uses its members. They cannot be changed once it has any. */
export interface BondOptions {
  mode: BondMode;
  /** How often the links of the members are looked at. */
  miimonMs: number;
  /** Only for `active-backup`. */
  failOverMac?: FailOverMac;
}

/** `IFLA_INFO_DATA` of a new bond. The mode comes first: the kernel applies them in its own order, and that is the first. */
export function encodeBond({ mode, miimonMs, failOverMac }: BondOptions): Attribute[] {
  return [
    { type: BondAttribute.mode, value: Buffer.of(bondModes.indexOf(mode)) },
    { type: BondAttribute.miimon, value: putU32(miimonMs) },
    ...(failOverMac === undefined
      ? []
      : [{ type: BondAttribute.failOverMac, value: Buffer.of(failOverMacs.indexOf(failOverMac)) }]),
  ];
}

/** What the bond says of a link that is a member of one. */
export interface BondMember {
  /** Whether the bond sends and receives by it. */
  isActiveMember?: boolean;
  /** In mode 802.3ad: whether its LACP partner is there and in sync. */
  lacpPartnerInSync?: boolean;
}

/** @param data `IFLA_INFO_SLAVE_DATA` */
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
