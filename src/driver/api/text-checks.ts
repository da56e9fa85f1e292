import * as z from 'zod';
import { AddressFamily, isUnicast, parseCidr, parseHardwareAddress, parseIpAddress } from '../../node/netlink/index.ts';

/**
 * Returns a schema for texts that pass a check.
 * @param format name of the same check in CEL, in deploy/admission
 * @param what noun phrase for the error, such as "a network"
 */
export const checked = (format: string, check: (text: string) => boolean, what: string) =>
  z
    .string()
    .refine(check, { error: (issue) => `${JSON.stringify(issue.input)} is not ${what}` })
    .meta({ format });

/** Printable ASCII without blank, `/` and `:`. `%` can occur once, as `%d`. */
const interfaceNamePattern = /^[!-$&-.0-9;-~]*(%d[!-$&-.0-9;-~]*)?$/;
/**
 * Names that an interface must not have, since their sysctl directories have another meaning: `all` and `default` apply to
 * all interfaces.
 */
const reservedInterfaceNames = ['.', '..', 'all', 'default'];

/** Returns whether a text is a CIDR. IPv4-mapped IPv6 addresses are refused, since admission policies cannot read them. */
export function isCidr(text: string): boolean {
  return succeeds(() => parseCidr(text)) && !isMapped(text);
}

function isMapped(text: string): boolean {
  const [address = ''] = text.split('/');
  return address.includes(':') && parseIpAddress(address).family === AddressFamily.ipv4;
}

export function isIpAddress(text: string): boolean {
  return !text.includes('/') && isCidr(`${text}/${text.includes(':') ? 128 : 32}`);
}

/** Returns whether a text is a unicast address. */
export function isHostAddress(text: string): boolean {
  return isIpAddress(text) && isUnicast(parseCidr(`${text}/${text.includes(':') ? 128 : 32}`));
}

/** Returns whether the kernel accepts an address as ARP target. Source: Linux `bond_is_ip_target_ok`. */
export function isArpTarget(text: string): boolean {
  return isIpAddress(text) && !text.includes(':') && !text.startsWith('0.') && text !== '255.255.255.255';
}

export function isInterfaceName(name: string): boolean {
  const isShort = name.length >= 1 && name.length <= 15;
  return isShort && interfaceNamePattern.test(name) && !reservedInterfaceNames.includes(name);
}

/** Name of a link that netdra creates in a pod: a bond or a VRF. */
export const linkName = checked(
  'link-name',
  (name) => isInterfaceName(name) && !name.includes('%'),
  'an interface name, without "%"',
);

export function isInterfaceAddress(text: string): boolean {
  return isCidr(text) && isUnicast(parseCidr(text));
}

export function isMacAddress(text: string): boolean {
  return succeeds(() => parseHardwareAddress(text));
}

function succeeds(task: () => unknown): boolean {
  try {
    task();
    return true;
  } catch {
    return false;
  }
}
