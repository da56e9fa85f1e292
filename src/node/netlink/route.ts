import { getS32, getU16, getU32, putU16, putU32 } from 'netlink';
import { type Attribute, Attributes, encodeAttributes } from './attributes.ts';
import { assertIndex, invalid } from './checks.ts';
import { AddressFamily, type Cidr, formatCidr, isNetwork, parseCidr, parseIpAddress } from './cidr.ts';

/** `RTA_*` of Linux `rtnetlink.h`. */
const RouteAttribute = { destination: 1, outInterface: 4, gateway: 5, multipath: 9, via: 18 } as const;
const headerBytes = 12;
const nextHopBytes = 8;
/** `RT_TABLE_MAIN`, `RTPROT_STATIC`, `RT_SCOPE_LINK`, `RTN_UNICAST`. */
const mainTable = 254;
const protocolStatic = 4;
const scopeLink = 253;
const typeUnicast = 1;

/** An entry of a routing table. */
export interface Route {
  /** Canonical; `0.0.0.0/0` or `::/0` is the default route. */
  destination: string;
  /** Indices of the links by which it leaves the host; most routes have one, and `blackhole` has none. */
  links: number[];
  /** Whether it leads to a host or network, unlike `local`, `blackhole` and others. */
  isUnicast: boolean;
}

/** A route of the main table. */
export interface NewRoute {
  /** With prefix length: `192.0.2.0/24`, `::/0`. */
  destination: string;
  /** Without one the destination is on the link. For IPv4 it can be an IPv6 address. */
  gateway?: string;
  index: number;
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
  const outInterface = attributes.get(RouteAttribute.outInterface);
  const multipath = attributes.get(RouteAttribute.multipath) ?? Buffer.alloc(0);
  return {
    destination: formatCidr(attributes.get(RouteAttribute.destination) ?? anywhere, message.readUInt8(1)),
    links: [...(outInterface === undefined ? [] : [getU32(outInterface)]), ...decodeMultipath(multipath)],
    isUnicast: message.readUInt8(7) === typeUnicast,
  };
}

export function isDefaultRoute({ destination, isUnicast }: Route): boolean {
  return isUnicast && (destination === '0.0.0.0/0' || destination === '::/0');
}

/**
 * The payload of a route message: `struct rtmsg` and attributes.
 * @throws NetlinkError `netlink-invalid`
 */
export function encodeRoute(route: NewRoute): Uint8Array[] {
  const index = assertIndex(route.index);
  const { family, octets, prefixLength } = parseDestination(route.destination);
  const gateway = route.gateway === undefined ? [] : [encodeGateway(route.gateway, family)];
  const scope = family === AddressFamily.ipv4 && gateway.length === 0 ? scopeLink : 0;
  const attributes: Attribute[] = [
    { type: RouteAttribute.destination, value: octets },
    { type: RouteAttribute.outInterface, value: putU32(index) },
    ...gateway,
  ];
  const header = Buffer.of(family, prefixLength, 0, 0, mainTable, protocolStatic, scope, typeUnicast);
  return [header, putU32(0), ...encodeAttributes(attributes)];
}

function parseDestination(text: string): Cidr {
  const destination = parseCidr(text);
  if (isNetwork(destination)) return destination;
  throw invalid(`the destination ${text} has bits set after its prefix`, 'write the network, such as 192.0.2.0/24');
}

/** @param family of the destination */
function encodeGateway(text: string, family: AddressFamily): Attribute {
  const gateway = parseIpAddress(text);
  if (gateway.family === family) return { type: RouteAttribute.gateway, value: gateway.octets };
  if (gateway.family === AddressFamily.ipv4) {
    throw invalid(`the gateway ${text} is IPv4, the destination IPv6`, 'use a gateway of the same family');
  }
  // IPv4 via an IPv6 neighbour (RFC 5549): the gateway's family comes first.
  return { type: RouteAttribute.via, value: Buffer.concat([putU16(gateway.family), gateway.octets]) };
}

/** The indices in a list of `struct rtnexthop`, each with its attributes and the length of both. */
function decodeMultipath(list: Buffer): number[] {
  const links: number[] = [];
  for (let rest = list; rest.length >= nextHopBytes; ) {
    const length = getU16(rest.subarray(0, 2));
    if (length < nextHopBytes) break;
    links.push(getS32(rest.subarray(4, 8)));
    rest = rest.subarray((length + 3) & ~3);
  }
  return links;
}
