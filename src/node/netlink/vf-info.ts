import { getU32 } from 'netlink';
import { defined } from '../../lib/defined.ts';
import { Attributes, decodeHardwareAddress, listAttributes } from './attributes.ts';

/** `IFLA_VF_*` of Linux `if_link.h`. */
const VfAttribute = { mac: 1, vlan: 2, spoofCheck: 4, linkState: 5, rate: 6, trust: 9, vlanList: 12 } as const;
const linkHeaderBytes = 16;
const listType = 22;
const ethernetBytes = 6;
/** Value that drivers use for what they do not know. */
const unknown = 0xffffffff;
const linkStates = ['auto', 'enable', 'disable'] as const;
const protocols: ReadonlyMap<number, VlanProtocol> = new Map([
  [0x8100, '802.1q'],
  [0x88a8, '802.1ad'],
]);
/** Bytes of `struct ifla_vf_vlan_info` before the protocol, which is in network order. */
const vlanProtocolOffset = 12;

type VlanProtocol = '802.1q' | '802.1ad';

/** A PF's settings for one of its VFs. This is all that can be known of a VF without an interface. */
export interface VfInfo {
  vfIndex: number;
  /** The administrative address; absent if none was set. */
  hardwareAddress?: string;
  /** Absent if frames are not tagged. */
  vlan?: { id: number; priority: number; protocol?: VlanProtocol };
  spoofCheck?: boolean;
  trust?: boolean;
  linkState?: (typeof linkStates)[number];
  /** 0 is no limit. */
  minTxRateMbps?: number;
  maxTxRateMbps?: number;
}

/**
 * The VFs in a PF's link message, if they were requested; drivers may leave some out.
 * @param options.whole leaves out VFs without MAC or VLAN, which the kernel always sends: what is missing would otherwise
 * look as if it were not set
 */
export function decodeVfInfos(message: Buffer, { whole = false }: { whole?: boolean } = {}): VfInfo[] {
  const list = new Attributes(message.subarray(linkHeaderBytes)).get(listType);
  if (list === undefined) return [];
  return listAttributes(list).flatMap(({ data }) => (whole && !isWhole(data) ? [] : (decodeVfInfo(data) ?? [])));
}

function isWhole(data: Buffer): boolean {
  const values = new Attributes(data);
  const vlan = values.get(VfAttribute.vlan)?.subarray(4, 8);
  return values.has(VfAttribute.mac) && vlan !== undefined && vlan.length === 4 && getU32(vlan) !== unknown;
}

/** Every value is a struct that starts with the number of the VF. */
function decodeVfInfo(data: Buffer): VfInfo | undefined {
  const values = new Attributes(data);
  const first = listAttributes(data)[0]?.data;
  if (first === undefined) return undefined;
  const word = (type: number, index: number) => {
    const value = values.get(type);
    return value === undefined ? unknown : getU32(value.subarray(4 * index, 4 * index + 4));
  };
  const known = defined({
    hardwareAddress: decodeAdminAddress(values.get(VfAttribute.mac)),
    vlan: decodeVlan(word(VfAttribute.vlan, 1), word(VfAttribute.vlan, 2), values.get(VfAttribute.vlanList)),
    spoofCheck: decodeSwitch(word(VfAttribute.spoofCheck, 1)),
    trust: decodeSwitch(word(VfAttribute.trust, 1)),
    linkState: linkStates[word(VfAttribute.linkState, 1)],
    minTxRateMbps: orUndefined(word(VfAttribute.rate, 1)),
    maxTxRateMbps: orUndefined(word(VfAttribute.rate, 2)),
  });
  return { vfIndex: getU32(first.subarray(0, 4)), ...known };
}

function decodeAdminAddress(value: Buffer | undefined): string | undefined {
  const octets = value?.subarray(4, 4 + ethernetBytes);
  return octets?.every((octet) => octet === 0) ? undefined : decodeHardwareAddress(octets);
}

/** @param list with one element; newer kernels also send it, for the protocol */
function decodeVlan(id: number, priority: number, list: Buffer | undefined): VfInfo['vlan'] | undefined {
  if (id === 0 || id === unknown) return undefined;
  const info = list === undefined ? undefined : listAttributes(list)[0]?.data;
  const isWhole = info !== undefined && info.length >= vlanProtocolOffset + 2;
  const protocol = isWhole ? protocols.get(info.readUInt16BE(vlanProtocolOffset)) : undefined;
  return { id, priority, ...(protocol === undefined ? {} : { protocol }) };
}

function decodeSwitch(value: number): boolean | undefined {
  return value === unknown ? undefined : value !== 0;
}

function orUndefined(value: number): number | undefined {
  return value === unknown ? undefined : value;
}
