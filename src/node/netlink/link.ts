import { getS32, putS32, putU32 } from 'netlink';
import { defined } from '../../lib/defined.ts';
import {
  type Attribute,
  Attributes,
  decodeHardwareAddress,
  decodeString,
  encodeAttributes,
  encodeString,
  listAttributes,
} from './attributes.ts';
import { type BondMember, decodeMember, decodePrimary, encodePrimary } from './bond.ts';
import {
  assertAlias,
  assertIndex,
  assertInterfaceName,
  assertMtu,
  parseHardwareAddress,
  parseOctets,
} from './checks.ts';
import { decodeVrfTable } from './vrf.ts';

/** `IFLA_*` of Linux `if_link.h`. */
export const LinkAttribute = {
  address: 1,
  broadcast: 2,
  name: 3,
  mtu: 4,
  link: 5,
  master: 10,
  txQueueLength: 13,
  linkMode: 17,
  linkInfo: 18,
  alias: 20,
  group: 27,
  netnsFd: 28,
  extMask: 29,
  carrier: 33,
  linkNetnsId: 37,
  physPortName: 38,
  gsoMaxSegments: 40,
  gsoMaxBytes: 41,
  xdp: 43,
  minMtu: 50,
  maxMtu: 51,
  propList: 52,
  altName: 53,
  parentDevName: 56,
  groMaxBytes: 58,
  gsoMaxBytesIpv4: 63,
  groMaxBytesIpv4: 64,
} as const;

const infoKind = 1;
const infoData = 2;
const infoPortKind = 4;
const infoPortData = 5;
const vethInfoPeer = 1;
export const linkHeaderBytes = 16;
const flagUp = 1;

/** `IFF_*` of Linux `if.h` that user space can set, besides `IFF_UP`. The kernel ignores changes of all other flags. */
const flagBits = {
  debug: 0x4,
  noTrailers: 0x20,
  noArp: 0x80,
  promiscuous: 0x100,
  allMulticast: 0x200,
  multicast: 0x1000,
  portSelect: 0x2000,
  autoMedia: 0x4000,
  dynamic: 0x8000,
} as const;
export type LinkFlag = keyof typeof flagBits;
const linkFlags = Object.keys(flagBits) as LinkFlag[];

/** Link modes, which set the operational state while the driver reports a carrier: `IF_LINK_MODE_*`. */
const linkModes = ['default', 'dormant', 'testing'] as const;
export type LinkMode = (typeof linkModes)[number];

/** Limits in the order in which the kernel applies them: a limit for all families also sets the limit for IPv4. */
const offloadLimits = ['gsoMaxBytes', 'gsoMaxSegments', 'groMaxBytes', 'gsoMaxBytesIpv4', 'groMaxBytesIpv4'] as const;
/**
 * Maximum sizes of packets that the network stack passes to the device in one piece. IPv4 has separate limits since Linux
 * 6.3.
 */
export type OffloadLimits = { [Limit in (typeof offloadLimits)[number]]?: number };

/** Places where an XDP program can run. Each mode has an attribute `IFLA_XDP_*_PROG_ID` and a flag `XDP_FLAGS_*_MODE`. */
const xdpModes = {
  driver: { programId: 5, flag: 4 },
  generic: { programId: 6, flag: 2 },
  hardware: { programId: 7, flag: 8 },
} as const;
export type XdpMode = keyof typeof xdpModes;
const xdpFd = 1;
const xdpFlags = 3;

/** Properties that the kernel reports and accepts in the same form. */
export interface LinkProperties {
  /** Hardware address, lower case with colons; absent for links without one, such as tunnels. */
  hardwareAddress?: string;
  linkMode?: LinkMode;
  /** Broadcast address, lower case with colons. */
  broadcastAddress?: string;
  /** Group of the link; 0 is the default group. */
  group?: number;
  /** Length of the transmit queue, in packets. */
  txQueueLength?: number;
  offloadLimits?: OffloadLimits;
}

/** A network interface, as seen from one network namespace. */
export interface Link extends BondMember, LinkProperties {
  index: number;
  name: string;
  mtuBytes: number;
  /** Smallest MTU that the driver accepts, since Linux 4.20; absent: no limit. */
  minMtuBytes?: number;
  maxMtuBytes?: number;
  /** Administrative state: `IFF_UP`. */
  up: boolean;
  carrier: boolean;
  /** Name of the device on its bus: for a VF, the PCI address. Reported since Linux 5.14; absent for virtual links. */
  parentDevice?: string;
  alias?: string;
  /** Name of the port from the driver: `p0` for a port of the card, `pf0vf3` for a representor of a VF. */
  portName?: string;
  /** Alternative names. They are decoded at each access: a link in a pod can have hundreds of them. */
  readonly altNames: string[];
  /** Kind of link: `veth`, `bridge`, `vlan` …; absent for hardware. */
  kind?: string;
  /** Index of the bridge, bond or VRF that the link is in. */
  master?: number;
  /** Index of the primary member, if the link is a bond. */
  primaryMember?: number;
  /** Routing table of the members, if the link is a VRF. */
  vrfTable?: number;
  /**
   * Index of the other end of a veth pair, or of the link below a VLAN. If `lowerNetnsId` is set, the index is valid in that
   * namespace.
   */
  lower?: number;
  /** Number that the kernel gives the namespace of `lower`, if that is another namespace. */
  lowerNetnsId?: number;
  /** Flags that are set, among those that user space can set. `promiscuous` is the requested value, not the effective one. */
  flags?: LinkFlag[];
  /** Modes in which an XDP program is attached; absent if there is none. */
  xdp?: XdpMode[];
}

/** Changes to a link. Absent properties stay unchanged. A new broadcast address must have as many octets as the link's own. */
export interface LinkChange extends LinkProperties {
  name?: string;
  mtuBytes?: number;
  up?: boolean;
  /** Alias; `''` removes it. */
  alias?: string;
  /** Namespace to move the link to; all other changes are then made there. */
  netns?: NetnsReference;
  /** Index of the bridge, bond or VRF; 0 for none. */
  master?: number;
  /**
   * Index of the primary member of a bond, which the bond uses while that member works. Fails with `EINVAL` in modes that use
   * all members.
   */
  primaryMember?: number;
  /** Flags to set or clear. Absent flags stay unchanged. */
  flags?: Partial<Record<LinkFlag, boolean>>;
  /** Mode of the XDP program to detach. Fails with `EBUSY` if a BPF link holds the program. */
  detachXdp?: XdpMode;
}

/** Reference to a network namespace in a request. */
export interface NetnsReference {
  readonly fd: number;
  readonly path: string;
}

/** Decodes a link message. @throws RangeError, TypeError or Error if the message is too short */
export function decodeLink(message: Buffer): Link {
  const attributes = new Attributes(message.subarray(linkHeaderBytes));
  const info = new Attributes(attributes.get(LinkAttribute.linkInfo) ?? Buffer.alloc(0));
  const flags = message.readUInt32LE(8);
  const lowerNetnsId = attributes.get(LinkAttribute.linkNetnsId);
  // The bytes are copied, so that a link that is kept does not keep the whole datagram.
  const names = Buffer.from(attributes.get(LinkAttribute.propList) ?? []);
  return {
    index: message.readInt32LE(4),
    name: decodeString(attributes.get(LinkAttribute.name)) ?? '',
    mtuBytes: attributes.number(LinkAttribute.mtu) ?? 0,
    up: (flags & flagUp) !== 0,
    flags: linkFlags.filter((flag) => (flags & flagBits[flag]) !== 0),
    carrier: attributes.number(LinkAttribute.carrier, 1) === 1,
    get altNames() {
      return decodeAltNames(names).map((name) => decodeString(name));
    },
    ...decodePort(info),
    ...decodeKind(info),
    ...defined({
      hardwareAddress: decodeHardwareAddress(attributes.get(LinkAttribute.address)),
      parentDevice: decodeString(attributes.get(LinkAttribute.parentDevName)),
      alias: decodeString(attributes.get(LinkAttribute.alias)),
      portName: decodeString(attributes.get(LinkAttribute.physPortName)),
      kind: decodeString(info.get(infoKind)),
      master: attributes.number(LinkAttribute.master),
      lower: attributes.number(LinkAttribute.link),
      lowerNetnsId: lowerNetnsId && getS32(lowerNetnsId),
      minMtuBytes: attributes.number(LinkAttribute.minMtu) || undefined,
      maxMtuBytes: attributes.number(LinkAttribute.maxMtu) || undefined,
      linkMode: linkModes[attributes.number(LinkAttribute.linkMode, 1) ?? -1],
      broadcastAddress: decodeHardwareAddress(attributes.get(LinkAttribute.broadcast)),
      group: attributes.number(LinkAttribute.group),
      txQueueLength: attributes.number(LinkAttribute.txQueueLength),
      offloadLimits: decodeOffloadLimits(attributes),
      xdp: decodeXdp(attributes.get(LinkAttribute.xdp)),
    }),
  };
}

/**
 * Returns alternative names as bytes, without the final NUL. The names need not be UTF-8, so a request must use exactly these
 * bytes.
 */
export function altNamesOf(message: Buffer): Buffer[] {
  const attributes = new Attributes(message.subarray(linkHeaderBytes));
  return decodeAltNames(attributes.get(LinkAttribute.propList) ?? Buffer.alloc(0));
}

/** Decodes alternative names. @param list `IFLA_PROP_LIST` */
function decodeAltNames(list: Buffer): Buffer[] {
  return listAttributes(list)
    .filter(({ type }) => type === LinkAttribute.altName)
    .map(({ data }) => data.subarray(0, data.indexOf(0) === -1 ? data.length : data.indexOf(0)));
}

function decodeOffloadLimits(attributes: Attributes): OffloadLimits | undefined {
  const limits = Object.fromEntries(offloadLimits.map((limit) => [limit, attributes.number(LinkAttribute[limit])]));
  const known = defined(limits);
  return Object.keys(known).length === 0 ? undefined : known;
}

function decodePort(info: Attributes): BondMember {
  return decodeString(info.get(infoPortKind)) === 'bond' ? decodeMember(info.get(infoPortData)) : {};
}

function decodeKind(info: Attributes): Pick<Link, 'primaryMember' | 'vrfTable'> {
  const data = info.get(infoData);
  if (data === undefined) return {};
  const kind = decodeString(info.get(infoKind));
  if (kind === 'vrf') return defined({ vrfTable: decodeVrfTable(data) });
  return kind === 'bond' ? defined({ primaryMember: decodePrimary(data) }) : {};
}

function decodeXdp(data: Buffer | undefined): XdpMode[] | undefined {
  if (data === undefined) return undefined;
  const attributes = new Attributes(data);
  const modes = (Object.keys(xdpModes) as XdpMode[]).filter((mode) => attributes.has(xdpModes[mode].programId));
  return modes.length === 0 ? undefined : modes;
}

/**
 * Encodes the payload of a link message: `struct ifinfomsg` and attributes.
 * @param index 0 if the kernel chooses the index, or finds the link by name
 * @param flags changes for the header: only `up` and `flags` are used
 */
export function encodeLink(index: number, attributes: Attribute[], flags: LinkChange = {}): Uint8Array[] {
  return [encodeHeader(index, flags), ...encodeAttributes(attributes)];
}

/** Encodes the payload of a message that adds or removes an alternative name: `IFLA_PROP_LIST`. */
export function encodeAltName(index: number, name: Uint8Array): Uint8Array[] {
  const value = [{ type: LinkAttribute.altName, value: Buffer.concat([name, Buffer.of(0)]) }];
  return encodeLink(index, [{ type: LinkAttribute.propList, value }]);
}

/** Encodes the payload that changes a link. @throws NetlinkError `netlink-invalid` */
export function encodeLinkChange(index: number, change: LinkChange): Uint8Array[] {
  return encodeLink(assertIndex(index), encodeProperties(change), change);
}

/** Encodes the payload for a new link. @param data `IFLA_INFO_DATA` of its kind @throws NetlinkError `netlink-invalid` */
export function encodeNewLink(link: LinkChange, kind: string, data: Attribute[] = []): Uint8Array[] {
  const info: Attribute[] = [{ type: infoKind, value: encodeString(kind) }];
  if (data.length > 0) info.push({ type: infoData, value: data });
  return encodeLink(0, [...encodeProperties(link), { type: LinkAttribute.linkInfo, value: info }]);
}

/** Encodes `IFLA_INFO_DATA` of a new veth pair, which describes its other end. */
export function encodeVethPeer(peer: LinkChange): Attribute[] {
  return [{ type: vethInfoPeer, value: Buffer.concat(encodeLink(0, encodeProperties(peer))) }];
}

/** Encodes the properties of a change except `up` and `flags`, which the header has. @throws NetlinkError `netlink-invalid` */
function encodeProperties(change: LinkChange): Attribute[] {
  const attributes: Attribute[] = [];
  const add = <T>(type: number, value: T | undefined, encode: (value: T) => Attribute['value']) => {
    if (value !== undefined) attributes.push({ type, value: encode(value) });
  };
  add(LinkAttribute.name, change.name, (name) => encodeString(assertInterfaceName(name)));
  add(LinkAttribute.mtu, change.mtuBytes, (mtuBytes) => putU32(assertMtu(mtuBytes)));
  add(LinkAttribute.address, change.hardwareAddress, parseHardwareAddress);
  // The alias has no final NUL byte: the kernel stores the bytes unchanged.
  add(LinkAttribute.alias, change.alias, (alias) => Buffer.from(assertAlias(alias)));
  add(LinkAttribute.netnsFd, change.netns, ({ fd }) => putU32(fd));
  add(LinkAttribute.master, change.master, (master) => putU32(master === 0 ? 0 : assertIndex(master)));
  add(LinkAttribute.linkMode, change.linkMode, (mode) => Buffer.of(linkModes.indexOf(mode)));
  add(LinkAttribute.broadcast, change.broadcastAddress, parseOctets);
  add(LinkAttribute.group, change.group, putU32);
  add(LinkAttribute.txQueueLength, change.txQueueLength, putU32);
  for (const limit of offloadLimits) add(LinkAttribute[limit], change.offloadLimits?.[limit], putU32);
  add(LinkAttribute.linkInfo, change.primaryMember, (member) => [
    { type: infoKind, value: encodeString('bond') },
    { type: infoData, value: encodePrimary(assertIndex(member)) },
  ]);
  add(LinkAttribute.xdp, change.detachXdp, (mode) => encodeXdp(-1, mode));
  return attributes;
}

/** Encodes an XDP program to attach. @param fd descriptor of the program; -1 detaches the attached program */
export function encodeXdp(fd: number, mode: XdpMode): Attribute[] {
  return [
    { type: xdpFd, value: putS32(fd) },
    { type: xdpFlags, value: putU32(xdpModes[mode].flag) },
  ];
}

function encodeHeader(index: number, { up, flags = {} }: LinkChange): Buffer {
  const header = Buffer.alloc(linkHeaderBytes);
  header.writeUInt32LE(index, 4);
  let [values, mask] = [up ? flagUp : 0, up === undefined ? 0 : flagUp];
  for (const flag of linkFlags) {
    if (flags[flag] === undefined) continue;
    mask |= flagBits[flag];
    if (flags[flag]) values |= flagBits[flag];
  }
  header.writeUInt32LE(values, 8);
  header.writeUInt32LE(mask, 12);
  return header;
}
