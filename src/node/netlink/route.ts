import { getS32, getU16, getU32, putU16, putU32 } from 'netlink';
import { type Attribute, Attributes, encodeAttributes } from './attributes.ts';
import { assertIndex, invalid } from './checks.ts';
import {
  AddressFamily,
  type Cidr,
  formatCidr,
  formatIpAddress,
  type IpAddress,
  isNetwork,
  parseCidr,
  parseIpAddress,
} from './cidr.ts';

/** `RTA_*` of Linux `rtnetlink.h`. */
const RouteAttribute = {
  destination: 1,
  outInterface: 4,
  gateway: 5,
  metric: 6,
  source: 7,
  multipath: 9,
  table: 15,
  via: 18,
} as const;
const headerBytes = 12;
const nextHopBytes = 8;
/** `RT_TABLE_MAIN`, `RTPROT_STATIC`, `RT_SCOPE_LINK`, `RTN_UNICAST`, `RTNH_F_ONLINK`. */
const mainTable = 254;
const protocolStatic = 4;
const scopeLink = 253;
const typeUnicast = 1;
const flagOnLink = 4;

/** `RTN_*`. */
const routeTypes = [
  'unspec',
  'unicast',
  'local',
  'broadcast',
  'anycast',
  'multicast',
  'blackhole',
  'unreachable',
  'prohibit',
];

/** One way out of the host; most routes have one. */
export interface NextHop {
  /** Absent for routes that lead nowhere, such as `blackhole`. */
  index?: number;
  gateway?: string;
}

/** An entry of a routing table. */
export interface Route {
  family: 'ipv4' | 'ipv6';
  /** Canonical; `0.0.0.0/0` or `::/0` is the default route. */
  destination: string;
  nextHops: NextHop[];
  /** 254 is the main table. */
  table: number;
  /** `unicast`, `local`, `blackhole` … */
  type: string;
  metric?: number;
  /** Source address of packets that have no other one. */
  source?: string;
}

export interface NewRoute {
  /** With prefix length: `192.0.2.0/24`, `::/0`. */
  destination: string;
  /** Without one the destination is on the link. For IPv4 it can be an IPv6 address. */
  gateway?: string;
  index: number;
  metric?: number;
  source?: string;
  /** Treats the gateway as reachable on this link even if no address implies it. */
  onLink?: boolean;
  /** Default 254, the main table. */
  table?: number;
}

/** Whether the destination of a route message has the prefix length 0. Source: `rtm_dst_len` of Linux `rtnetlink.h`. */
export function hasZeroPrefix(message: Buffer): boolean {
  return message[1] === 0;
}

/** `undefined` for families other than IP. */
export function decodeRoute(message: Buffer): Route | undefined {
  const family = message.readUInt8(0);
  if (family !== AddressFamily.ipv4 && family !== AddressFamily.ipv6) return undefined;
  const attributes = new Attributes(message.subarray(headerBytes));
  const anywhere = Buffer.alloc(family === AddressFamily.ipv4 ? 4 : 16);
  const table = attributes.get(RouteAttribute.table);
  const metric = attributes.get(RouteAttribute.metric);
  const source = attributes.get(RouteAttribute.source);
  const multipath = attributes.get(RouteAttribute.multipath);
  return {
    family: family === AddressFamily.ipv4 ? 'ipv4' : 'ipv6',
    destination: formatCidr(attributes.get(RouteAttribute.destination) ?? anywhere, message.readUInt8(1)),
    nextHops: multipath === undefined ? [decodeNextHop(attributes)] : decodeMultipath(multipath),
    table: table === undefined ? message.readUInt8(4) : getU32(table),
    type: routeTypes[message.readUInt8(7)] ?? 'other',
    ...(metric === undefined ? {} : { metric: getU32(metric) }),
    ...(source === undefined ? {} : { source: formatIpAddress(source) }),
  };
}

export function isDefaultRoute({ destination, type }: Route): boolean {
  return type === 'unicast' && (destination === '0.0.0.0/0' || destination === '::/0');
}

/**
 * The payload of a route message: `struct rtmsg` and attributes.
 * @throws NetlinkError `netlink-invalid`
 */
export function encodeRoute(route: NewRoute): Uint8Array[] {
  assertIndex(route.index);
  const destination = parseDestination(route.destination);
  const gateway = route.gateway === undefined ? undefined : parseGateway(route.gateway, destination);
  const table = route.table ?? mainTable;
  const scope = destination.family === AddressFamily.ipv4 && gateway === undefined ? scopeLink : 0;
  const attributes: Attribute[] = [
    { type: RouteAttribute.destination, value: destination.octets },
    { type: RouteAttribute.outInterface, value: putU32(route.index) },
    { type: RouteAttribute.table, value: putU32(table) },
  ];
  if (gateway !== undefined) attributes.push(encodeGateway(gateway, destination.family));
  if (route.metric !== undefined) attributes.push({ type: RouteAttribute.metric, value: putU32(route.metric) });
  if (route.source !== undefined) {
    attributes.push({ type: RouteAttribute.source, value: parseSource(route.source, destination).octets });
  }
  const shortTable = table <= 0xff ? table : 0;
  const header = Buffer.of(
    destination.family,
    destination.prefixLength,
    0,
    0,
    shortTable,
    protocolStatic,
    scope,
    typeUnicast,
  );
  return [header, putU32(route.onLink ? flagOnLink : 0), ...encodeAttributes(attributes)];
}

function parseDestination(text: string): Cidr {
  const destination = parseCidr(text);
  if (isNetwork(destination)) return destination;
  throw invalid(`the destination ${text} has bits set after its prefix`, 'write the network, such as 192.0.2.0/24');
}

function parseGateway(text: string, destination: Cidr): IpAddress {
  const gateway = parseIpAddress(text);
  if (gateway.family === destination.family || gateway.family === AddressFamily.ipv6) return gateway;
  throw invalid(`the gateway ${text} is IPv4, the destination IPv6`, 'use a gateway of the same family');
}

function parseSource(text: string, destination: Cidr): IpAddress {
  const source = parseIpAddress(text);
  if (source.family === destination.family) return source;
  throw invalid(`the source ${text} is of another family than the destination`, 'use an address of the same family');
}

function encodeGateway(gateway: IpAddress, family: AddressFamily): Attribute {
  if (gateway.family === family) return { type: RouteAttribute.gateway, value: gateway.octets };
  // IPv4 via an IPv6 neighbour (RFC 5549): the gateway's family comes first.
  return { type: RouteAttribute.via, value: Buffer.concat([putU16(gateway.family), gateway.octets]) };
}

function decodeNextHop(attributes: Attributes): NextHop {
  const outInterface = attributes.get(RouteAttribute.outInterface);
  return {
    ...(outInterface === undefined ? {} : { index: getU32(outInterface) }),
    ...decodeGateway(attributes),
  };
}

function decodeGateway(attributes: Attributes): { gateway?: string } {
  const octets = attributes.get(RouteAttribute.gateway) ?? attributes.get(RouteAttribute.via)?.subarray(2);
  return octets === undefined ? {} : { gateway: formatIpAddress(octets) };
}

/** A list of `struct rtnexthop`, each with its attributes and the length of both. */
function decodeMultipath(list: Buffer): NextHop[] {
  const nextHops: NextHop[] = [];
  for (let rest = list; rest.length >= nextHopBytes; ) {
    const length = getU16(rest.subarray(0, 2));
    if (length < nextHopBytes) break;
    const index = getS32(rest.subarray(4, 8));
    nextHops.push({ index, ...decodeGateway(new Attributes(rest.subarray(nextHopBytes, length))) });
    rest = rest.subarray((length + 3) & ~3);
  }
  return nextHops;
}
