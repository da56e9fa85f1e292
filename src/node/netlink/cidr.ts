import { isIPv4, isIPv6, SocketAddress } from 'node:net';
import { Address4, Address6 } from 'ip-address';
import { invalid } from './checks.ts';

/** Address families: Linux `AF_INET` and `AF_INET6`. */
export const AddressFamily = { ipv4: 2, ipv6: 10 } as const;
export type AddressFamily = (typeof AddressFamily)[keyof typeof AddressFamily];

/** An IP address as in rtnetlink: 4 or 16 octets in network byte order. */
export interface IpAddress {
  family: AddressFamily;
  octets: Uint8Array;
}

/** An address with the prefix length of its network. It may have host bits. */
export interface Cidr extends IpAddress {
  prefixLength: number;
}

const mappedPrefix = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff);

/**
 * Parses an address. An IPv4-mapped IPv6 address becomes IPv4 (`::ffff:10.0.0.1` → `10.0.0.1`).
 * @throws NetlinkError `netlink-invalid`; also for zones (`%eth0`) and leading zeros
 */
export function parseIpAddress(text: string): IpAddress {
  const octets = octetsOf(text);
  if (octets !== undefined) return toCidr(octets, 8 * octets.length);
  throw invalid(`${JSON.stringify(text)} is not an IP address`, 'use an address such as 192.0.2.7 or 2001:db8::7');
}

/**
 * Parses an address with prefix length: `192.0.2.7/24`, `2001:db8::7/64`. An IPv4-mapped IPv6 address becomes IPv4, with its
 * prefix length (`::ffff:10.0.0.1/120` → `10.0.0.1/24`).
 * @throws NetlinkError `netlink-invalid`
 */
export function parseCidr(text: string): Cidr {
  const [address = '', prefix = '', ...rest] = text.split('/');
  const octets = octetsOf(address);
  const prefixLength = /^(0|[1-9]\d{0,2})$/.test(prefix) ? Number(prefix) : Number.NaN;
  if (octets !== undefined && rest.length === 0 && prefixLength <= 8 * octets.length) {
    return toCidr(octets, prefixLength);
  }
  throw invalid(
    `${JSON.stringify(text)} is not an address with prefix length`,
    'use a form such as 192.0.2.7/24 or 2001:db8::7/64',
  );
}

/**
 * Formats an address with prefix length as canonical text: dotted decimal, or RFC 5952. An IPv4-mapped IPv6 address is
 * written as IPv4.
 * Source: `IsValidInterfaceAddress` of Kubernetes' API machinery, which accepts nothing else in `networkData.ips`.
 */
export function formatCidr(octets: Uint8Array, prefixLength: number): string {
  const cidr = toCidr(octets, prefixLength);
  return `${formatIpAddress(cidr.octets)}/${cidr.prefixLength}`;
}

/** Returns the canonical form of an address with prefix length. @param text as for {@link parseCidr} */
export function canonicalCidr(text: string): string {
  const { octets, prefixLength } = parseCidr(text);
  return formatCidr(octets, prefixLength);
}

/**
 * Returns the canonical text of an address without prefix length. Ten times as fast as {@link canonicalCidr}, for comparing
 * thousands of addresses.
 * @param address text that is valid for {@link parseIpAddress}
 */
export function quickCanonicalAddress(address: string): string {
  const text = new SocketAddress({ address, family: isIPv6(address) ? 'ipv6' : 'ipv4' }).address;
  return text.replace(/^::ffff:(?=.*\.)/, '');
}

/**
 * Returns whether a canonical text is an IPv4-mapped IPv6 address. Only one with a prefix below 96 is written like that, see
 * {@link formatCidr}.
 */
export function isMapped(text: string): boolean {
  return /^::ffff:[^:]+:[^:]+$/.test(text);
}

/** Formats 4 or 16 octets as canonical text. */
export function formatIpAddress(octets: Uint8Array): string {
  if (octets.length === 4) return octets.join('.');
  return Address6.fromByteArray([...octets]).correctForm();
}

/** Returns whether all bits after the prefix are zero, as in the destination of a route. */
export function isNetwork(cidr: Cidr): boolean {
  return Buffer.compare(networkOf(cidr).octets, cidr.octets) === 0;
}

/** Returns the network of an address: its host bits are zero. */
export function networkOf({ family, octets, prefixLength }: Cidr): Cidr {
  const masked = octets.map((octet, index) => {
    const networkBits = Math.min(8, Math.max(0, prefixLength - 8 * index));
    return octet & (0xff00 >> networkBits);
  });
  return { family, octets: masked, prefixLength };
}

/** Returns whether the whole network of `inner` is in the network of `outer`. Ignores host bits of both. */
export function isWithin(inner: Cidr, outer: Cidr): boolean {
  if (inner.family !== outer.family || inner.prefixLength < outer.prefixLength) return false;
  const around = networkOf({ ...inner, prefixLength: outer.prefixLength });
  return Buffer.compare(around.octets, networkOf(outer).octets) === 0;
}

/** Returns whether an interface can have the address: it is neither unspecified nor multicast. */
export function isUnicast({ octets }: IpAddress): boolean {
  if (octets.every((octet) => octet === 0)) return false;
  return octets.length === 4 ? octets[0]! < 224 || octets[0]! >= 240 : octets[0] !== 0xff;
}

/** Returns the octets of an address; `undefined` for a text that is not an address, or has a zone. */
function octetsOf(text: string): Uint8Array | undefined {
  if (isIPv4(text)) return Uint8Array.from(new Address4(text).toArray());
  if (isIPv6(text) && !text.includes('%')) return Uint8Array.from(new Address6(text).toUnsignedByteArray());
  return undefined;
}

function toCidr(octets: Uint8Array, prefixLength: number): Cidr {
  if (octets.length === 4) return { family: AddressFamily.ipv4, octets, prefixLength };
  const isMapped = prefixLength >= 96 && mappedPrefix.every((octet, index) => octets[index] === octet);
  if (isMapped) return toCidr(octets.slice(12), prefixLength - 96);
  return { family: AddressFamily.ipv6, octets, prefixLength };
}
