import { getU32, putU32 } from 'netlink';
import { defined } from '../../lib/defined.ts';
import { type Attribute, Attributes, decodeHardwareAddress, listAttributes } from './attributes.ts';
import { parseOctets } from './checks.ts';

/** `IFLA_VFINFO_LIST`, `IFLA_VF_INFO` and `IFLA_VF_VLAN_INFO` of Linux `if_link.h`. */
export const infoListType = 22;
const infoType = 1;
const vlanInfoType = 1;
/** `IFLA_VF_*` of Linux `if_link.h`. Every value is a struct that begins with the number of the VF. */
const VfAttribute = { mac: 1, vlan: 2, spoofCheck: 4, linkState: 5, rate: 6, trust: 9, vlanList: 12 } as const;
const linkHeaderBytes = 16;
const ethernetBytes = 6;
/** `MAX_ADDR_LEN` of Linux `netdevice.h`. */
const maxAddressBytes = 32;
/** Value that drivers report for an unknown setting. */
const unknown = 0xffffffff;
/** Link states. The position of a state is its number: `IFLA_VF_LINK_STATE_*` of Linux `if_link.h`. */
const linkStates = ['auto', 'enable', 'disable'] as const;
const etherTypes = { '802.1q': 0x8100, '802.1ad': 0x88a8 } as const;
const vlanProtocols = Object.keys(etherTypes) as VlanProtocol[];
/** Offset of the protocol in `struct ifla_vf_vlan_info`, in bytes. The protocol is in network byte order. */
const vlanProtocolOffset = 12;

type VlanProtocol = keyof typeof etherTypes;

/** Settings that PFs report and accept in the same form. */
interface VfSwitches {
  spoofCheck?: boolean;
  trust?: boolean;
  linkState?: (typeof linkStates)[number];
}

/** Changes of a PF's settings for one of its VFs. Absent settings stay unchanged. */
export interface VfChange extends VfSwitches {
  /** Administrative MAC address. All zeros remove it, so that the VF may choose its address again. */
  hardwareAddress?: string;
  /** VLAN tag; `id` 0 removes it. */
  vlan?: { id: number; priority?: number; protocol?: VlanProtocol };
  /** Minimum and maximum rate, which the kernel has in one attribute. 0 means none. */
  rate?: { minMbps: number; maxMbps: number };
}

/** Settings of a PF for one of its VFs. If the VF has no interface, nothing else is known about it. */
export interface AdminSettings extends VfSwitches {
  /** Administrative MAC address; absent if none was set. */
  hardwareAddress?: string;
  /** VLAN tag that the PF adds to frames; absent if it adds none. */
  vlan?: { id: number; priority: number; protocol?: VlanProtocol };
  /** Guaranteed rate; 0: none. */
  minTxRateMbps?: number;
  maxTxRateMbps?: number;
}

/** Settings of a PF for the VF with index `vfIndex`. */
export interface VfInfo extends AdminSettings {
  vfIndex: number;
}

/** Access to the settings that PFs in one network namespace enforce for their VFs: see `RtnlConnection`. */
export interface VfInfoAccess {
  vfInfos(pfIndex: number): Promise<VfInfo[]>;
  setVf(pfIndex: number, vfIndex: number, change: VfChange): Promise<void>;
}

/** A property, as attributes of a link message. */
interface EncodedVfProperty {
  property: keyof VfChange;
  attributes: Attribute[];
}

/** Encodes each property separately: if a driver refuses one with EOPNOTSUPP, the others must not be lost. */
export function encodeVfChange(vfIndex: number, change: VfChange): EncodedVfProperty[] {
  const words = (...values: number[]) => Buffer.concat([vfIndex, ...values].map((value) => putU32(value)));
  const encoders: { [K in keyof VfChange]-?: (value: NonNullable<VfChange[K]>) => Attribute } = {
    hardwareAddress: (value) => {
      const padded = Buffer.concat([parseOctets(value)], maxAddressBytes);
      return { type: VfAttribute.mac, value: Buffer.concat([words(), padded]) };
    },
    vlan: ({ id, priority = 0, protocol = '802.1q' }) => {
      const etherType = Buffer.alloc(4);
      etherType.writeUInt16BE(etherTypes[protocol]);
      const info = { type: vlanInfoType, value: Buffer.concat([words(id, priority), etherType]) };
      return { type: VfAttribute.vlanList, value: [info] };
    },
    spoofCheck: (value) => ({ type: VfAttribute.spoofCheck, value: words(Number(value)) }),
    trust: (value) => ({ type: VfAttribute.trust, value: words(Number(value)) }),
    linkState: (value) => ({ type: VfAttribute.linkState, value: words(linkStates.indexOf(value)) }),
    rate: ({ minMbps, maxMbps }) => ({ type: VfAttribute.rate, value: words(minMbps, maxMbps) }),
  };
  return (Object.keys(encoders) as (keyof VfChange)[]).flatMap((property) => {
    const value = change[property];
    if (value === undefined) return [];
    const attribute = (encoders[property] as (value: unknown) => Attribute)(value);
    return [{ property, attributes: [{ type: infoListType, value: [{ type: infoType, value: [attribute] }] }] }];
  });
}

/**
 * Returns the settings of VFs in a PF's link message, if they were requested. Drivers may leave VFs out.
 * @param options.whole whether to skip VFs without MAC or VLAN, which the kernel normally sends for each VF: the missing
 * setting would look as if it were not set
 */
export function decodeVfInfos(message: Buffer, { whole = false }: { whole?: boolean } = {}): VfInfo[] {
  const list = new Attributes(message.subarray(linkHeaderBytes)).get(infoListType);
  if (list === undefined) return [];
  return listAttributes(list).flatMap(({ data }) => decodeVfInfo(data, whole) ?? []);
}

function decodeVfInfo(data: Buffer, whole: boolean): VfInfo | undefined {
  const values = new Attributes(data);
  const first = listAttributes(data)[0]?.data;
  if (first === undefined) return undefined;
  const word = (type: number, index: number): number | undefined => {
    const value = values.get(type)?.subarray(4 * index, 4 * index + 4);
    const number = value === undefined ? unknown : getU32(value);
    return number === unknown ? undefined : number;
  };
  const flag = (type: number): boolean | undefined => {
    const value = word(type, 1);
    return value === undefined ? undefined : value !== 0;
  };
  const vlanId = word(VfAttribute.vlan, 1);
  if (whole && (vlanId === undefined || !values.has(VfAttribute.mac))) return undefined;
  const known = defined({
    hardwareAddress: decodeAdminAddress(values.get(VfAttribute.mac)),
    vlan: decodeVlan(vlanId, word(VfAttribute.vlan, 2), values.get(VfAttribute.vlanList)),
    spoofCheck: flag(VfAttribute.spoofCheck),
    trust: flag(VfAttribute.trust),
    linkState: linkStates[word(VfAttribute.linkState, 1) ?? unknown],
    minTxRateMbps: word(VfAttribute.rate, 1),
    maxTxRateMbps: word(VfAttribute.rate, 2),
  });
  return { vfIndex: getU32(first.subarray(0, 4)), ...known };
}

function decodeAdminAddress(value: Buffer | undefined): string | undefined {
  const octets = value?.subarray(4, 4 + ethernetBytes);
  return octets?.every((octet) => octet === 0) ? undefined : decodeHardwareAddress(octets);
}

/** Decodes a VLAN tag. @param list list with one element, which has the protocol; only newer kernels send it */
function decodeVlan(id = 0, priority = 0, list?: Buffer): VfInfo['vlan'] {
  if (id === 0) return undefined;
  const info = list && listAttributes(list)[0]?.data;
  const isWhole = info !== undefined && info.length >= vlanProtocolOffset + 2;
  const etherType = isWhole ? info.readUInt16BE(vlanProtocolOffset) : undefined;
  return { id, priority, ...defined({ protocol: vlanProtocols.find((each) => etherTypes[each] === etherType) }) };
}
