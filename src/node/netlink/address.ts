import { getU32, putU32 } from 'netlink';
import { type Attribute, Attributes, encodeAttributes } from './attributes.ts';
import { assertIndex, invalid } from './checks.ts';
import { formatCidr, isUnicast, parseCidr } from './cidr.ts';

/** `IFA_*` of Linux `if_addr.h`. */
const AddressAttribute = { address: 1, local: 2, flags: 8 } as const;
const flag = {
  temporary: 0x01,
  noDad: 0x02,
  optimistic: 0x04,
  dadFailed: 0x08,
  tentative: 0x40,
  permanent: 0x80,
} as const;
const headerBytes = 8;

/** `RT_SCOPE_*` of Linux `rtnetlink.h`. */
export const scopes: Record<number, AddressScope> = { 0: 'global', 200: 'site', 253: 'link', 254: 'host' };
export type AddressScope = 'global' | 'site' | 'link' | 'host' | 'nowhere';

export interface Address {
  index: number;
  /** Canonical address: `192.0.2.7/24`, `2001:db8::7/64`. */
  cidr: string;
  scope: AddressScope;
  /** Whether duplicate address detection is running and the address cannot be used until it ends. */
  tentative: boolean;
  /** Set if duplicate address detection is running but the address can already be used (RFC 4429). */
  optimistic?: true;
  /** Whether another host has the address, so that it cannot be used. */
  dadFailed: boolean;
  /** Set if the address has a lifetime, because a router or a DHCP client assigned it. Absent: it stays until it is removed. */
  dynamic?: true;
  /** Set if the kernel replaces the address after some time, so that it does not identify the host (RFC 8981). */
  temporary?: true;
}

/** Returns whether other hosts can reach addresses of this scope. */
export function isReachable(scope: AddressScope | undefined): boolean {
  return scope === 'global' || scope === 'site';
}

/** Returns the scope of an address without decoding the rest of its message. Source: `ifa_scope` of Linux `if_addr.h`. */
export function scopeOf(message: Buffer): AddressScope | undefined {
  return scopes[message[3] ?? Number.NaN];
}

/** Decodes an address message; `undefined` for families other than IP. */
export function decodeAddress(message: Buffer): Address | undefined {
  const attributes = new Attributes(message.subarray(headerBytes));
  // On point-to-point links, IFA_ADDRESS is the address of the peer.
  const octets = attributes.get(AddressAttribute.local) ?? attributes.get(AddressAttribute.address);
  if (octets === undefined || (octets.length !== 4 && octets.length !== 16)) return undefined;
  const wideFlags = attributes.get(AddressAttribute.flags);
  const flags = wideFlags === undefined ? message.readUInt8(2) : getU32(wideFlags);
  return {
    index: getU32(message.subarray(4, 8)),
    cidr: formatCidr(octets, message.readUInt8(1)),
    scope: scopeOf(message) ?? 'nowhere',
    tentative: (flags & flag.tentative) !== 0 && (flags & flag.optimistic) === 0,
    ...((flags & flag.optimistic) !== 0 && octets.length === 16 && { optimistic: true }),
    dadFailed: (flags & flag.dadFailed) !== 0,
    ...((flags & flag.permanent) === 0 ? { dynamic: true } : {}),
    // For IPv4, the same bit marks secondary addresses of a network.
    ...((flags & flag.temporary) !== 0 && octets.length === 16 && { temporary: true }),
  };
}

/**
 * Mode of duplicate address detection for an IPv6 address. `none`: the address is usable at once, even if another host has
 * it. `optimistic`: usable at once, until another host is found to have it; the kernel treats it as `wait` if
 * `optimistic_dad` is 0. `wait`, the default: usable after one to two seconds.
 */
export type DuplicateDetection = 'none' | 'optimistic' | 'wait';

/**
 * Encodes the payload of an address message: `struct ifaddrmsg` and attributes.
 * @throws NetlinkError `netlink-invalid`
 */
export function encodeAddress(index: number, cidr: string, detection: DuplicateDetection = 'wait'): Uint8Array[] {
  assertIndex(index);
  const address = parseCidr(cidr);
  if (!isUnicast(address)) {
    throw invalid(`no interface can have the address ${cidr}`, 'use neither 0.0.0.0, :: nor a multicast address');
  }
  const { family, octets, prefixLength } = address;
  const flags = { none: flag.noDad, optimistic: flag.optimistic, wait: 0 }[detection];
  const attributes: Attribute[] = [
    { type: AddressAttribute.local, value: octets },
    { type: AddressAttribute.address, value: octets },
    { type: AddressAttribute.flags, value: putU32(flags) },
  ];
  return [Buffer.of(family, prefixLength, flags, 0), putU32(index), ...encodeAttributes(attributes)];
}
