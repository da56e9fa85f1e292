import { isIPv4, isIPv6 } from 'node:net';
import { formatIpAddress, parseIpAddress } from '../../../src/netlink/cidr.ts';
import { formatCidr, NetlinkError, parseCidr, parseHardwareAddress } from '../../../src/netlink/index.ts';
import { expectThat, type FuzzTarget, utf8 } from '../target.ts';

/** Refused, or read so that its canonical text is read as the same. */
function checkCidr(text: string): void {
  const { octets, prefixLength } = parseCidr(text);
  const canonical = formatCidr(octets, prefixLength);
  const again = parseCidr(canonical);
  expectThat(formatCidr(again.octets, again.prefixLength) === canonical, `${canonical} is not canonical`);
  expectThat(prefixLength <= 8 * octets.length, `prefix length ${prefixLength} of ${octets.length} octets`);
  const [address = ''] = text.split('/');
  expectThat(isIPv4(address) || isIPv6(address), 'what Node.js takes for no address was taken');
}

function checkAddress(text: string): void {
  const canonical = formatIpAddress(parseIpAddress(text).octets);
  expectThat(formatIpAddress(parseIpAddress(canonical).octets) === canonical, `${canonical} is not canonical`);
}

/** Addresses as text. */
export const target: FuzzTarget = {
  name: 'addresses',
  errors: [],
  covers: ['src/netlink/cidr.ts'],
  maxBytes: 300,
  dictionary: ['::', 'ffff:', '0.0.0.0', '/128', '/32', '/0', '%eth0', '255', '00', '1.2.3.4'],
  seeds: () =>
    [
      ...['192.0.2.7/24', '2001:db8::7/64', '::ffff:10.0.0.1/120', '::/0', '0.0.0.0/0', '::1.2.3.4/96'],
      ...['192.0.2.7', 'fe80::1%eth0', '1:2:3:4:5:6:7:8', '02:00:00:00:00:01'],
    ].map((text) => Buffer.from(text)),
  run(input) {
    const text = utf8(input);
    for (const check of [checkCidr, checkAddress, parseHardwareAddress]) {
      try {
        check(text);
      } catch (error) {
        if (!(error instanceof NetlinkError)) throw error;
      }
    }
  },
};
