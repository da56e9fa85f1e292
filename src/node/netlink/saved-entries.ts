import { FlagsNew, getU32, putU32 } from 'netlink';
import { decodeAddress, isReachable } from './address.ts';
import { Attributes, encodeAttributes, listAttributes } from './attributes.ts';
import { assertIndex } from './checks.ts';
import { AddressFamily } from './cidr.ts';
import type { EntryTable } from './entries.ts';
import { hintsFor, routeHints } from './request-hints.ts';
import {
  decodeRoute,
  flagOnLink,
  formatRoute,
  localTable,
  type Route,
  RouteAttribute,
  routeHeaderBytes,
} from './route.ts';
import { MessageType } from './rtnl-requests.ts';

/**
 * Payload of the kernel's message about an address or a route of a link, in hexadecimal. It also has settings that a claim
 * cannot request, but no lifetime.
 */
export type SavedEntry = string;

/**
 * Size of `struct ifaddrmsg`, and attributes that are saved, `IFA_*` of Linux `if_addr.h`: address, local, label, broadcast,
 * flags, metric, protocol.
 */
const addressHeaderBytes = 8;
const savedOfAddress = [1, 2, 3, 4, 8, 9, 11];
const addressFlags = 8;
const addressLabel = 3;
/** `IFA_F_*` of Linux `if_addr.h`, for IPv6: the first one has another meaning for IPv4. */
const temporary = 0x01;
const noDad = 0x02;
const noPrefixRoute = 0x200;

/**
 * Addresses that were assigned to a link. Addresses that the kernel itself adds are left out: temporary and link-local IPv6
 * addresses.
 */
export const savedAddressTable: EntryTable<SavedEntry, 'addresses'> = {
  name: 'addresses',
  newType: MessageType.newAddress,
  getType: MessageType.getAddress,
  flags: FlagsNew.CREATE | FlagsNew.EXCL,
  hints: { ...routeHints, ...hintsFor('::') },
  encode: (entry, index) => [withIndex(Buffer.from(entry, 'hex'), index)],
  encodeFilter: (index) => [withIndex(Buffer.alloc(addressHeaderBytes), index)],
  decode(message) {
    const address = decodeAddress(message);
    const isIpv6 = message[0] === AddressFamily.ipv6;
    if (address === undefined || !(isReachable(address.scope) || (!isIpv6 && address.scope === 'link')))
      return undefined;
    const attributes = new Attributes(message.subarray(addressHeaderBytes));
    const wide = attributes.get(addressFlags);
    const flags = wide === undefined ? message.readUInt8(2) : getU32(wide);
    if (isIpv6 && (flags & temporary) !== 0) return undefined;
    const header = Buffer.from(message.subarray(0, addressHeaderBytes));
    // Duplicate address detection is switched off, since the link has had the address, unless it was still running or has
    // found another host.
    const isOwn = isIpv6 && !address.tentative && !address.dadFailed;
    const kept = (flags & noPrefixRoute) | (isOwn ? noDad : 0);
    header[2] = kept & 0xff;
    // A label without a colon is the name of the link, which differs in the pod.
    const saved = listAttributes(message.subarray(addressHeaderBytes))
      .filter(({ type, data }) => savedOfAddress.includes(type) && (type !== addressLabel || data.includes(':')))
      .map(({ type, data }) => ({ type, value: type === addressFlags ? putU32(kept) : data }));
    return Buffer.concat([header, ...encodeAttributes(saved)]).toString('hex');
  },
  format: (entry) => cidrOf(entry),
};

/** Returns the address with its prefix length. */
export function cidrOf(address: SavedEntry): string {
  return decodeAddress(Buffer.from(address, 'hex'))?.cidr ?? address;
}

function withIndex(message: Buffer, index: number): Buffer {
  message.writeUInt32LE(assertIndex(index), 4);
  return message;
}

const { outInterface, multipath } = RouteAttribute;
/** Attributes that describe a route, `RTA_*` of Linux `rtnetlink.h`; its lifetime and next hop objects are left out. */
const savedOfRoute = [1, 2, outInterface, 5, 6, 7, 8, multipath, 11, 15, 18, 20, 21, 22, 26];
/** `RTM_F_CLONED` of Linux `rtnetlink.h`. */
const cloned = 0x200;
/** Destinations of routes that the kernel itself adds to each link with IPv6. */
const everyLinkHas = /^(fe[89ab]|ff)/;

/** Unicast routes through a link, in all tables. */
export const savedRouteTable: EntryTable<SavedEntry, 'routes'> = {
  name: 'routes',
  newType: MessageType.newRoute,
  getType: MessageType.getRoute,
  flags: FlagsNew.CREATE | FlagsNew.EXCL,
  hints: routeHints,
  encode(entry, index) {
    const message = Buffer.from(entry, 'hex');
    const attributes = listAttributes(message.subarray(routeHeaderBytes)).map(({ type, data }) => {
      if (type === outInterface) return { type, value: putU32(assertIndex(index)) };
      return { type, value: type === multipath ? withLink(data, index) : data };
    });
    return [message.subarray(0, routeHeaderBytes), ...encodeAttributes(attributes)];
  },
  encodeFilter: (index) => [
    Buffer.alloc(routeHeaderBytes),
    ...encodeAttributes([{ type: outInterface, value: putU32(assertIndex(index)) }]),
  ],
  decode(message) {
    const route = decodeRoute(message);
    if (route === undefined || !route.isUnicast || route.table === localTable) return undefined;
    if (everyLinkHas.test(route.destination) || (message.readUInt32LE(8) & cloned) !== 0) return undefined;
    const header = Buffer.from(message.subarray(0, routeHeaderBytes));
    // `flagOnLink` is the only flag that a request can have.
    header.writeUInt32LE(header.readUInt32LE(8) & flagOnLink, 8);
    const saved = listAttributes(message.subarray(routeHeaderBytes))
      .filter(({ type }) => savedOfRoute.includes(type))
      .map(({ type, data }) => ({ type, value: data }));
    return Buffer.concat([header, ...encodeAttributes(saved)]).toString('hex');
  },
  format: (entry) => {
    const { destination, table } = routeOf(entry);
    return formatRoute({ destination, table });
  },
};

export function routeOf(entry: SavedEntry): Route {
  const route = decodeRoute(Buffer.from(entry, 'hex'));
  if (route === undefined) throw new TypeError(`${entry} is not the message of a route`);
  return route;
}

/** Returns a list of `struct rtnexthop` with the index of the link in each of them. */
function withLink(hops: Buffer, index: number): Buffer {
  const list = Buffer.from(hops);
  for (let at = 0; at + 8 <= list.length; ) {
    const length = list.readUInt16LE(at);
    list[at + 2] = list.readUInt8(at + 2) & flagOnLink;
    list.writeInt32LE(assertIndex(index), at + 4);
    if (length < 8) break;
    at += (length + 3) & ~3;
  }
  return list;
}
