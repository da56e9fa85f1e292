import { getS32, getU8, getU32, putU32 } from 'netlink';
import {
  type Attribute,
  decodeAttributes,
  decodeHardwareAddress,
  decodeString,
  encodeAttributes,
  encodeString,
  listAttributes,
} from './attributes.ts';
import { assertAlias, assertIndex, assertInterfaceName, assertMtu, parseHardwareAddress } from './checks.ts';
import type { NetnsHandle } from './netns.ts';

/** `IFLA_*` of Linux `if_link.h`. */
export const LinkAttribute = {
  address: 1,
  name: 3,
  mtu: 4,
  link: 5,
  master: 10,
  operState: 16,
  linkInfo: 18,
  alias: 20,
  netnsFd: 28,
  extMask: 29,
  carrier: 33,
  linkNetnsId: 37,
  physPortName: 38,
  propList: 52,
  altName: 53,
  permanentAddress: 54,
  parentDevName: 56,
} as const;

const infoKind = 1;
const infoData = 2;
const vethInfoPeer = 1;
const headerBytes = 16;
const flagUp = 1;

/** RFC 2863 states in the order of Linux `IF_OPER_*`, with the words of sysfs. */
const operStates = ['unknown', 'notpresent', 'down', 'lowerlayerdown', 'testing', 'dormant', 'up'] as const;
export type OperState = (typeof operStates)[number];

/** A network interface, as seen from one network namespace. */
export interface Link {
  index: number;
  name: string;
  /** Lower case with colons; absent for links without one, such as tunnels. */
  hardwareAddress?: string;
  /** What the device itself has, whatever was set since; absent where the driver does not tell. */
  permanentAddress?: string;
  mtuBytes: number;
  /** Administratively: `IFF_UP`. */
  up: boolean;
  operState: OperState;
  carrier: boolean;
  /** Name of the device on its bus: the PCI address of a VF. Linux 5.14+; absent for virtual links. */
  parentDevice?: string;
  alias?: string;
  /** What the driver calls the port: `p0` for the one on the card, `pf0vf3` for a representor of a VF. */
  portName?: string;
  altNames: string[];
  /** `veth`, `bridge`, `vlan` …; absent for hardware. */
  kind?: string;
  /** Index of the bridge or bond that it is a port of. */
  master?: number;
  /** Index of the other end of a veth pair, or of the link below a VLAN. In `lowerNetnsId`'s namespace, if set. */
  lower?: number;
  /** The kernel's number for the namespace that `lower` is in, if that is another one. */
  lowerNetnsId?: number;
}

/** Changes to a link; what is absent stays. */
export interface LinkChange {
  name?: string;
  mtuBytes?: number;
  hardwareAddress?: string;
  up?: boolean;
  /** `''` takes it away. */
  alias?: string;
  /** Moves the link there; everything else then holds in the new namespace. */
  netns?: NetnsHandle;
  /** Index of the bridge or bond; 0 for none. */
  master?: number;
}

/** @throws RangeError, TypeError or Error if the message is too short */
export function decodeLink(message: Buffer): Link {
  const attributes = decodeAttributes(message.subarray(headerBytes));
  const info = decodeAttributes(attributes.get(LinkAttribute.linkInfo) ?? Buffer.alloc(0));
  const number = (type: number, read: (data: Buffer) => number) => {
    const data = attributes.get(type);
    return data === undefined ? undefined : read(data);
  };
  return {
    index: getS32(message.subarray(4, 8)),
    name: decodeString(attributes.get(LinkAttribute.name)) ?? '',
    mtuBytes: number(LinkAttribute.mtu, getU32) ?? 0,
    up: (getU32(message.subarray(8, 12)) & flagUp) !== 0,
    operState: operStates[number(LinkAttribute.operState, getU8) ?? 0] ?? 'unknown',
    carrier: number(LinkAttribute.carrier, getU8) === 1,
    altNames: listAttributes(attributes.get(LinkAttribute.propList) ?? Buffer.alloc(0))
      .filter(({ type }) => type === LinkAttribute.altName)
      .map(({ data }) => decodeString(data)),
    ...defined({
      hardwareAddress: decodeHardwareAddress(attributes.get(LinkAttribute.address)),
      permanentAddress: decodeHardwareAddress(attributes.get(LinkAttribute.permanentAddress)),
      parentDevice: decodeString(attributes.get(LinkAttribute.parentDevName)),
      alias: decodeString(attributes.get(LinkAttribute.alias)),
      portName: decodeString(attributes.get(LinkAttribute.physPortName)),
      kind: decodeString(info.get(infoKind)),
      master: number(LinkAttribute.master, getU32),
      lower: number(LinkAttribute.link, getU32),
      lowerNetnsId: number(LinkAttribute.linkNetnsId, getS32),
    }),
  };
}

/**
 * The payload of a link message: `struct ifinfomsg` and attributes.
 * @param index 0 if the kernel chooses, or finds the link by name
 */
export function encodeLink(index: number, attributes: Attribute[], up?: boolean): Uint8Array[] {
  return [encodeHeader(index, up), ...encodeAttributes(attributes)];
}

/** @throws NetlinkError `netlink-invalid` */
export function encodeLinkChange(index: number, change: LinkChange): Uint8Array[] {
  assertIndex(index);
  return encodeLink(index, encodeProperties(change), change.up);
}

/**
 * The attributes for a new veth pair.
 * @throws NetlinkError `netlink-invalid`
 */
export function encodeVeth(end: LinkChange, peer: LinkChange): Uint8Array[] {
  const peerMessage = Buffer.concat(encodeLink(0, encodeProperties(peer)));
  const data = [{ type: vethInfoPeer, value: peerMessage }];
  return encodeLink(0, [...encodeProperties(end), encodeKind('veth', data)]);
}

/** `IFLA_LINKINFO` of a new link. */
export function encodeKind(kind: string, data: Attribute[] = []): Attribute {
  const value: Attribute[] = [{ type: infoKind, value: encodeString(kind) }];
  if (data.length > 0) value.push({ type: infoData, value: data });
  return { type: LinkAttribute.linkInfo, value };
}

/** All of a change but `up`, which is in the header. */
export function encodeProperties(change: LinkChange): Attribute[] {
  const { name, mtuBytes, hardwareAddress, alias, netns, master } = change;
  const attributes: Attribute[] = [];
  const add = (type: number, value: Uint8Array) => attributes.push({ type, value });
  if (name !== undefined) {
    assertInterfaceName(name);
    add(LinkAttribute.name, encodeString(name));
  }
  if (mtuBytes !== undefined) {
    assertMtu(mtuBytes);
    add(LinkAttribute.mtu, putU32(mtuBytes));
  }
  if (hardwareAddress !== undefined) add(LinkAttribute.address, parseHardwareAddress(hardwareAddress));
  if (alias !== undefined) {
    assertAlias(alias);
    // Without a NUL byte: the kernel takes the bytes as they are.
    add(LinkAttribute.alias, Buffer.from(alias));
  }
  if (netns !== undefined) add(LinkAttribute.netnsFd, putU32(netns.fd));
  if (master !== undefined) {
    if (master !== 0) assertIndex(master);
    add(LinkAttribute.master, putU32(master));
  }
  return attributes;
}

function encodeHeader(index: number, up: boolean | undefined): Buffer {
  const header = Buffer.alloc(headerBytes);
  putU32(index).copy(header, 4);
  if (up !== undefined) {
    putU32(up ? flagUp : 0).copy(header, 8);
    putU32(flagUp).copy(header, 12);
  }
  return header;
}

/** The object without its undefined members. */
function defined<T extends object>(object: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
