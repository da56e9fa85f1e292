import { NetlinkError } from './errors.ts';

// Functions whose names begin with `assert` return the checked value. All of them throw NetlinkError `netlink-invalid`.

/** Maximum length of an interface name: Linux `IFNAMSIZ` without the final NUL byte. */
export const maxInterfaceNameBytes = 15;
/** Maximum length of an alias: Linux `IFALIASZ` without the final NUL byte. */
const maxAliasBytes = 255;

/**
 * Checks an interface name as the kernel's `dev_valid_name` does. Also refuses `%`, for which the kernel would insert a
 * number.
 */
export function assertInterfaceName(name: string): string {
  const bytes = Buffer.byteLength(name);
  const isFree = name !== '.' && name !== '..' && !/[\s/:%\0]/.test(name);
  if (bytes >= 1 && bytes <= maxInterfaceNameBytes && isFree) return name;
  throw invalid(
    `${JSON.stringify(name)} is not an interface name`,
    'use 1 to 15 bytes, no blank, "/", ":" or "%"',
    name,
  );
}

export function assertAlias(alias: string): string {
  if (Buffer.byteLength(alias) <= maxAliasBytes && !alias.includes('\0')) return alias;
  throw invalid(`${JSON.stringify(alias)} is not an interface alias`, `use at most ${maxAliasBytes} bytes, no NUL`);
}

export function assertIndex(index: number): number {
  if (Number.isInteger(index) && index >= 1 && index <= 0x7fffffff) return index;
  throw invalid(`${index} is not an interface index`, 'take it from a link that was read before');
}

/** Checks an MTU in bytes. 68 is the minimum of IPv4; the kernel checks the limits of the device. */
export function assertMtu(mtuBytes: number): number {
  if (Number.isInteger(mtuBytes) && mtuBytes >= 68 && mtuBytes <= 65_535) return mtuBytes;
  throw invalid(`${mtuBytes} is not an MTU`, 'use 68 to 65535 bytes');
}

/**
 * Parses the Ethernet address of an interface.
 * @param text six octets with colons, in either case; neither multicast nor zero
 */
export function parseHardwareAddress(text: string): Buffer {
  const octets = Buffer.from(text.replaceAll(':', ''), 'hex');
  if (isEthernetAddress(text) && octets.some((octet) => octet !== 0) && (octets[0]! & 1) === 0) return octets;
  throw invalid(
    `${JSON.stringify(text)} is not a hardware address of an interface`,
    'use six octets with colons, neither a multicast address nor zero',
  );
}

/** Parses a hardware address of any length. InfiniBand addresses have 20 octets. */
export function parseOctets(text: string): Buffer {
  if (/^[0-9a-f]{2}(:[0-9a-f]{2}){0,31}$/i.test(text)) return Buffer.from(text.replaceAll(':', ''), 'hex');
  throw invalid(`${JSON.stringify(text)} is not a hardware address`, 'use up to 32 octets with colons');
}

/**
 * Returns whether a text is an address of six octets, as Ethernet has. InfiniBand addresses have 20 octets and cannot be set
 * from the host.
 */
export function isEthernetAddress(text: string): boolean {
  return /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/i.test(text);
}

export function invalid(message: string, hint: string, interfaceName?: string): NetlinkError {
  return new NetlinkError('netlink-invalid', message, { hint, interfaceName });
}
