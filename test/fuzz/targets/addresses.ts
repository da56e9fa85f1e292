import { isIPv4, isIPv6 } from 'node:net';
import fc from 'fast-check';
import { formatIpAddress, parseIpAddress } from '../../../src/node/netlink/cidr.ts';
import { formatCidr, NetlinkError, parseCidr, parseHardwareAddress } from '../../../src/node/netlink/index.ts';
import { addressTexts, cidrTexts, macTexts } from '../../doubles/vf-config-arbitraries.ts';
import { expectThat, type FuzzTarget, utf8 } from '../target.ts';

/** Accepted text has a canonical form, which parses to the same value. */
function checkCidr(text: string): void {
  const cidr = unlessRefused(() => parseCidr(text));
  if (cidr === undefined) return;
  const { octets, prefixLength } = cidr;
  expectThat(prefixLength >= 0 && prefixLength <= 8 * octets.length, `${octets.length} octets with /${prefixLength}`);
  const canonical = formatCidr(octets, prefixLength);
  const again = parseCidr(canonical);
  expectThat(formatCidr(again.octets, again.prefixLength) === canonical, `${canonical} is not canonical`);
  const [address = ''] = text.split('/');
  expectThat(isIPv4(address) || isIPv6(address), 'an address was accepted that Node.js does not accept');
}

function checkAddress(text: string): void {
  const address = unlessRefused(() => parseIpAddress(text));
  if (address === undefined) return;
  const canonical = formatIpAddress(address.octets);
  expectThat(formatIpAddress(parseIpAddress(canonical).octets) === canonical, `${canonical} is not canonical`);
}

function unlessRefused<T>(parse: () => T): T | undefined {
  try {
    return parse();
  } catch (error) {
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

/** Addresses as text. */
export const target: FuzzTarget = {
  name: 'addresses',
  errors: [],
  generated: fc.oneof(cidrTexts, addressTexts, macTexts).map((text) => Buffer.from(text)),
  dictionary: ['::', 'ffff:', '0.0.0.0', '/128', '/32', '/0', '%eth0', '255', '00', '1.2.3.4'],
  seeds: () =>
    [
      '192.0.2.7/24',
      '2001:db8::7/64',
      '::ffff:10.0.0.1/120',
      '::/0',
      '0.0.0.0/0',
      '::1.2.3.4/96',
      '192.0.2.7',
      'fe80::1%eth0',
      '1:2:3:4:5:6:7:8',
      '02:00:00:00:00:01',
    ].map((text) => Buffer.from(text)),
  run(input) {
    const text = utf8(input);
    checkCidr(text);
    checkAddress(text);
    unlessRefused(() => parseHardwareAddress(text));
  },
};
