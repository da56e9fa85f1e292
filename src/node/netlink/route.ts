import { getS32, getU16, getU32, putU16, putU32 } from 'netlink';
import { defined } from '../../lib/defined.ts';
import { type Attribute, Attributes, encodeAttributes } from './attributes.ts';
import { assertIndex, invalid } from './checks.ts';
import { AddressFamily, type Cidr, canonicalCidr, formatCidr, isNetwork, parseCidr, parseIpAddress } from './cidr.ts';

/** `RTA_*` of Linux `rtnetlink.h`. */
export const RouteAttribute = {
  destination: 1,
  outInterface: 4,
  gateway: 5,
  priority: 6,
  source: 7,
  metrics: 8,
  multipath: 9,
  table: 15,
  via: 18,
  nextHop: 30,
} as const;
/** `RTAX_*` of Linux `rtnetlink.h`: attributes within `RTA_METRICS`. */
const metricMtu = 2;
const metricAdvMss = 8;
export const routeHeaderBytes = 12;
const nextHopBytes = 8;
/** Flag of a route or of one of its next hops: `RTNH_F_ONLINK`. */
export const flagOnLink = 4;
/** `RT_TABLE_LOCAL`, `RT_TABLE_MAIN`, `RTPROT_STATIC`, `RT_SCOPE_LINK`, `RTN_UNICAST`, `RTN_UNREACHABLE`. */
export const localTable = 255;
const mainTable = 254;
const protocolStatic = 4;
export const scopeLink = 253;
const scopes = { global: 0, link: scopeLink } as const;
export type RouteScope = keyof typeof scopes;
const typeUnicast = 1;
const typeUnreachable = 7;
/** The kernel's priority for an IPv6 route that is added without one: `IP6_RT_PRIO_USER`. */
const defaultIpv6Priority = 1024;

/** Maximum number of a link's routes that are read in a pod: sixteen times as many as a claim may request. */
export const maxListedRoutes = 1_024;
/** Maximum number of a route's next hops that are decoded in a pod: eight times as many as a claim may request. */
const maxHops = 64;

/** A route in a routing table. */
export interface Route {
  /** Canonical destination; `0.0.0.0/0` or `::/0` is the default route. */
  destination: string;
  /** Indices of the outgoing links. Most routes have one link; `blackhole` routes have none. */
  links: number[];
  /**
   * ID of the next hop object that has the links, for a route without links of its own. Source: Linux
   * `net.ipv4.nexthop_compat_mode`.
   */
  nextHop?: number;
  /** Whether the route leads to a host or network, unlike `local`, `blackhole` and other types. */
  isUnicast: boolean;
  table: number;
  /** Priority. Of several routes to a destination in a table, the lowest number wins. */
  priority: number;
  /** Gateways as bytes in network order; absent if there are none. */
  gateways?: Uint8Array[];
  /** Preferred source address, in network order. */
  source?: Uint8Array;
}

export interface RouteHop {
  gateway: string;
  /** Share of the traffic, 1 to 256, in proportion to the weights of the other hops. Default: 1. */
  weight?: number | undefined;
}

/** A route without its link. */
export interface RouteSpec {
  /** Destination with prefix length: `192.0.2.0/24`, `::/0`. */
  destination: string;
  /** Gateway; absent: the destination is on the link. An IPv4 route can have an IPv6 gateway. */
  gateway?: string | undefined;
  /** Several gateways, in place of `gateway`. */
  nextHops?: RouteHop[] | undefined;
  /** Whether the gateways are reachable on the link although no network of an address contains them. */
  onlink?: boolean | undefined;
  /** Preferred source address of packets. For IPv4, any address of the namespace; for IPv6, an address of the link. */
  source?: string | undefined;
  /** Priority. Absent or 0: the kernel's default, which is 0 for IPv4 and 1024 for IPv6. */
  priority?: number | undefined;
  /** Routing table. Absent or 0: the main table. */
  table?: number | undefined;
  /** Scope, as a name or `RT_SCOPE_*`, for IPv4 only. Absent: global with a gateway, link without one. */
  scope?: RouteScope | number | undefined;
  /** Whether packets to the destination are refused. A route that refuses packets has no link. */
  isUnreachable?: boolean;
  mtuBytes?: number;
  /** TCP segment size to advertise, in bytes. */
  advMssBytes?: number;
}

export interface NewRoute extends RouteSpec {
  /** Index of the link. */
  index: number;
}

/**
 * Returns a key that identifies a route of a link. The kernel refuses a second route with the same key with EEXIST.
 * @param destination destination in canonical form
 */
export function routeKey(destination: string, { table, priority }: Pick<RouteSpec, 'table' | 'priority'>): string {
  return `${destination} ${table || mainTable} ${priority || (destination.includes(':') ? defaultIpv6Priority : 0)}`;
}

/** Properties that identify a route of a link. */
export type RouteId = Pick<RouteSpec, 'destination' | 'table' | 'priority'>;

/**
 * Returns, for each wanted route of a link, the route that keeps the kernel from adding it. Other routes are only partly
 * decoded: a pod's routes can have thousands of next hops.
 * @param messages route messages
 * @throws RangeError or Error if a message is too short
 */
export function findRoutes(
  messages: readonly Buffer[],
  index: number,
  wanted: readonly RouteId[],
): (Route | undefined)[] {
  const keys = wanted.map((each) => routeKey(canonicalCidr(each.destination), each));
  const missing = new Set(keys);
  const found = new Map<string, Route>();
  for (const message of messages) {
    const { destination, ...id } = decodeId(message, attributesOf(message)) ?? {};
    const key = destination === undefined ? '' : routeKey(destination, id);
    const route = missing.has(key) ? decodeRoute(message, maxHops) : undefined;
    if (!route?.links.includes(index)) continue;
    found.set(key, route);
    missing.delete(key);
  }
  return keys.map((key) => found.get(key));
}

/** Returns whether a route has all wanted gateways and, if one is wanted, the source address. */
export function leadsAsWanted({ gateways = [], source }: Route, wanted: RouteSpec): boolean {
  const octets = gatewaysOf(wanted).map((each) => parseIpAddress(each.gateway).octets);
  const isSame = (one: Uint8Array, other: Uint8Array | undefined) => other !== undefined && !Buffer.compare(one, other);
  return (
    octets.every((each) => gateways.some((gateway) => isSame(each, gateway))) &&
    (wanted.source === undefined || isSame(parseIpAddress(wanted.source).octets, source))
  );
}

/** Formats a route: `198.51.100.0/24 via 192.0.2.1 in table 100`. */
export function formatRoute(route: RouteSpec): string {
  const { destination, table, source } = route;
  const gateways = gatewaysOf(route).map(({ gateway }) => gateway);
  return [
    destination,
    ...(gateways.length === 0 ? [] : [`via ${gateways.join(' and ')}`]),
    ...(source === undefined ? [] : [`from ${source}`]),
    ...(table === undefined ? [] : [`in table ${table}`]),
  ].join(' ');
}

function gatewaysOf({ gateway, nextHops = [] }: RouteSpec): RouteHop[] {
  return gateway === undefined ? nextHops : [{ gateway }];
}

/** Returns whether the destination of a route message has prefix length 0. Source: `rtm_dst_len` of Linux `rtnetlink.h`. */
export function hasZeroPrefix(message: Buffer): boolean {
  return message[1] === 0;
}

/** Decodes a route; `undefined` for families other than IP. @param mostHops maximum number of next hops to decode */
export function decodeRoute(message: Buffer, mostHops = Infinity): Route | undefined {
  const attributes = attributesOf(message);
  const id = decodeId(message, attributes);
  if (id === undefined) return undefined;
  const outInterface = attributes.get(RouteAttribute.outInterface);
  const hops = decodeMultipath(attributes.get(RouteAttribute.multipath) ?? Buffer.alloc(0), mostHops);
  const gateways = [gatewayOf(attributes), ...hops.map(({ gateway }) => gateway)].filter((each) => each !== undefined);
  const links = [...(outInterface === undefined ? [] : [getU32(outInterface)]), ...hops.map(({ link }) => link)];
  return {
    ...id,
    links,
    ...defined({ nextHop: links.length === 0 ? numberIn(attributes, RouteAttribute.nextHop) : undefined }),
    isUnicast: message.readUInt8(7) === typeUnicast,
    ...(gateways.length > 0 && { gateways }),
    ...defined({ source: attributes.get(RouteAttribute.source) }),
  };
}

function decodeId(message: Buffer, attributes: Attributes): Pick<Route, keyof RouteId> | undefined {
  const family = message.readUInt8(0);
  if (family !== AddressFamily.ipv4 && family !== AddressFamily.ipv6) return undefined;
  const anywhere = Buffer.alloc(family === AddressFamily.ipv4 ? 4 : 16);
  return {
    destination: formatCidr(attributes.get(RouteAttribute.destination) ?? anywhere, message.readUInt8(1)),
    table: numberIn(attributes, RouteAttribute.table) ?? message.readUInt8(4),
    priority: numberIn(attributes, RouteAttribute.priority) ?? 0,
  };
}

function attributesOf(message: Buffer): Attributes {
  return new Attributes(message.subarray(routeHeaderBytes));
}

function numberIn(attributes: Attributes, type: number): number | undefined {
  const data = attributes.get(type);
  return data && getU32(data);
}

/**
 * Encodes the payload of a request for the routes of a link, or of all links. Source: Linux `fib_frontend.c`,
 * `ip_valid_fib_dump_req`.
 */
export function encodeRouteFilter(index?: number): Uint8Array[] {
  const link = index === undefined ? [] : [{ type: RouteAttribute.outInterface, value: putU32(assertIndex(index)) }];
  return [Buffer.alloc(routeHeaderBytes), ...encodeAttributes(link)];
}

export function isDefaultRoute({ destination, isUnicast }: Route): boolean {
  return isUnicast && (destination === '0.0.0.0/0' || destination === '::/0');
}

/**
 * Encodes the payload of a route message: `struct rtmsg` and attributes.
 * @throws NetlinkError `netlink-invalid`
 */
export function encodeRoute(route: NewRoute): Uint8Array[] {
  const index = assertIndex(route.index);
  const { family, octets, prefixLength } = parseDestination(route.destination);
  const { table = 0, nextHops, onlink, source, isUnreachable } = route;
  const scope = scopeOf(route);
  const flags = onlink ? flagOnLink : 0;
  const gateway = route.gateway === undefined ? [] : [encodeGateway(route.gateway, family)];
  const path = isUnreachable ? [] : [{ type: RouteAttribute.outInterface, value: putU32(index) }, ...gateway];
  const hops = nextHops?.map((each) => encodeNextHop(each, index, family, flags));
  const metrics = [
    ...encodeNumber(metricMtu, route.mtuBytes, 'MTU of the route'),
    ...encodeNumber(metricAdvMss, route.advMssBytes, 'segment size of the route'),
  ];
  const attributes: Attribute[] = [
    { type: RouteAttribute.destination, value: octets },
    ...(hops === undefined ? path : [{ type: RouteAttribute.multipath, value: Buffer.concat(hops) }]),
    ...(source === undefined ? [] : [{ type: RouteAttribute.source, value: parseIpAddress(source).octets }]),
    ...encodeNumber(RouteAttribute.priority, route.priority, 'priority of the route'),
    ...encodeNumber(RouteAttribute.table, table || mainTable, 'routing table'),
    ...(metrics.length === 0 ? [] : [{ type: RouteAttribute.metrics, value: metrics }]),
  ];
  const kernelScope = family === AddressFamily.ipv4 ? scope : 0;
  const type = isUnreachable ? typeUnreachable : typeUnicast;
  // The table in the header is 0: the kernel takes the table from its attribute, which has room for large numbers.
  const header = Buffer.of(family, prefixLength, 0, 0, 0, protocolStatic, kernelScope, type);
  return [header, putU32(hops === undefined ? flags : 0), ...encodeAttributes(attributes)];
}

function scopeOf(route: NewRoute): number {
  const { scope = gatewaysOf(route).length === 0 ? scopeLink : 0 } = route;
  const number = typeof scope === 'string' ? scopes[scope] : scope;
  if (Number.isInteger(number) && number >= 0 && number <= 255) return number;
  throw invalid(`${scope} is not the scope of a route`, 'use a number from 0 to 255');
}

/** Encodes a `struct rtnexthop`. Its length includes its attributes. */
function encodeNextHop({ gateway, weight = 1 }: RouteHop, index: number, family: AddressFamily, flags: number): Buffer {
  const attributes = encodeAttributes([encodeGateway(gateway, family)]);
  const header = Buffer.alloc(nextHopBytes, putU32(index));
  const hop = Buffer.concat([header, ...attributes]);
  hop.writeUInt16LE(hop.length);
  hop.writeUInt8(flags, 2);
  hop.writeUInt8(weight - 1, 3);
  return hop;
}

/** Encodes a number. If it is absent or 0, returns no attribute, so that the kernel's default applies. */
function encodeNumber(type: number, value: number | undefined, what: string): Attribute[] {
  if (value === undefined || value === 0) return [];
  if (Number.isInteger(value) && value > 0 && value <= 0xffffffff) return [{ type, value: putU32(value) }];
  throw invalid(`${value} is not the ${what}`, 'use a whole number of 32 bits');
}

function parseDestination(text: string): Cidr {
  const destination = parseCidr(text);
  if (isNetwork(destination)) return destination;
  throw invalid(`the destination ${text} has bits set after its prefix`, 'write the network, such as 192.0.2.0/24');
}

/** Encodes a gateway. @param family address family of the destination */
function encodeGateway(text: string, family: AddressFamily): Attribute {
  const gateway = parseIpAddress(text);
  if (gateway.family === family) return { type: RouteAttribute.gateway, value: gateway.octets };
  if (gateway.family === AddressFamily.ipv4) {
    throw invalid(`the gateway ${text} is IPv4, the destination IPv6`, 'use a gateway of the same family');
  }
  // For IPv4 via an IPv6 neighbor (RFC 5549), the gateway's family comes first.
  return { type: RouteAttribute.via, value: Buffer.concat([putU16(gateway.family), gateway.octets]) };
}

function gatewayOf(attributes: Attributes): Buffer | undefined {
  return attributes.get(RouteAttribute.gateway) ?? attributes.get(RouteAttribute.via)?.subarray(2);
}

/** Decodes a list of `struct rtnexthop`. The length of each includes its attributes. */
function decodeMultipath(list: Buffer, most: number): { link: number; gateway: Buffer | undefined }[] {
  const hops: { link: number; gateway: Buffer | undefined }[] = [];
  for (let rest = list; rest.length >= nextHopBytes && hops.length < most; ) {
    const length = getU16(rest.subarray(0, 2));
    if (length < nextHopBytes) break;
    const gateway = gatewayOf(new Attributes(rest.subarray(nextHopBytes, length)));
    hops.push({ link: getS32(rest.subarray(4, 8)), gateway });
    rest = rest.subarray((length + 3) & ~3);
  }
  return hops;
}
