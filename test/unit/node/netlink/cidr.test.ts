import { SocketAddress } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  formatCidr,
  isNetwork,
  isUnicast,
  isWithin,
  networkOf,
  parseCidr,
  parseIpAddress,
} from '../../../../src/node/netlink/cidr.ts';
import { NetlinkError } from '../../../../src/node/netlink/errors.ts';

const canonical = (text: string) => {
  const { octets, prefixLength } = parseCidr(text);
  return formatCidr(octets, prefixLength);
};

describe('parseCidr and formatCidr', () => {
  it.each([
    ['10.0.0.1/24', '10.0.0.1/24'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['2001:DB8:0:0::1/64', '2001:db8::1/64'],
    ['1:0:2:3:4:5:6:7/128', '1:0:2:3:4:5:6:7/128'],
    ['1::2:0:0:0:3/64', '1:0:0:2::3/64'],
    ['::/0', '::/0'],
    ['::1/128', '::1/128'],
    ['::ffff:10.0.0.1/120', '10.0.0.1/24'],
    ['::ffff:a00:1/96', '10.0.0.1/0'],
    ['::ffff:10.0.0.1/90', '::ffff:a00:1/90'],
  ])('normalizes %s to %s', (text, expected) => expect(canonical(text)).toBe(expected));

  it('agree with node:net on every IPv6 address', () =>
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 16, maxLength: 16 }),
        fc.integer({ min: 0, max: 95 }),
        (octets, length) => {
          const groups = Array.from({ length: 8 }, (_, i) => ((octets[2 * i]! << 8) | octets[2 * i + 1]!).toString(16));
          const reference = new SocketAddress({ family: 'ipv6', address: groups.join(':') }).address;
          // The C library writes some addresses with an IPv4 tail; RFC 5952 leaves that to the prefixes that define it.
          fc.pre(!reference.includes('.'));
          expect(formatCidr(octets, length)).toBe(`${reference}/${length}`);
          expect(parseCidr(`${reference}/${length}`).octets).toEqual(octets);
        },
      ),
    ));

  it.each([
    '10.0.0.1',
    '10.0.0.1/33',
    '10.0.0.1/',
    '10.0.0.1/-1',
    '10.0.0.1/024',
    '10.0.0.1/2 4',
    '10.0.0.1/24/24',
    '10.0.0.01/24',
    '10.0.0/24',
    '2001:db8::1/129',
    'fe80::1%eth0/64',
    '::ffff:10.0.0.1/129',
    '',
    '/24',
    'eth0/24',
  ])('rejects %j', (text) => {
    expect(() => parseCidr(text)).toThrow(NetlinkError);
    expect(() => parseCidr(text)).toThrow(JSON.stringify(text));
  });
});

describe('parseIpAddress', () => {
  it('treats IPv4-mapped IPv6 as IPv4', () => {
    expect(parseIpAddress('::ffff:192.0.2.7')).toMatchObject({ family: 2, octets: Uint8Array.of(192, 0, 2, 7) });
  });

  it.each(['192.0.2.7/24', '192.0.2', 'fe80::1%eth0', ''])('rejects %j', (text) =>
    expect(() => parseIpAddress(text)).toThrow(NetlinkError),
  );
});

describe('isNetwork', () => {
  it.each(['0.0.0.0/0', '10.0.0.0/8', '10.128.0.0/9', '192.0.2.7/32', '::/0', '2001:db8::/33', '2001:db8::1/128'])(
    'accepts %s',
    (text) => expect(isNetwork(parseCidr(text))).toBe(true),
  );
  it.each(['10.0.0.1/0', '10.1.0.0/8', '10.192.0.0/9', '192.0.2.7/31', '2001:db8:8000::/32'])('rejects %s', (text) =>
    expect(isNetwork(parseCidr(text))).toBe(false),
  );
});

describe('networkOf', () => {
  it.each([
    ['192.0.2.10/1', '128.0.0.0/1'],
    ['192.0.2.10/0', '0.0.0.0/0'],
    ['10.1.99.99/8', '10.0.0.0/8'],
    ['192.0.2.11/31', '192.0.2.10/31'],
    ['192.0.2.10/32', '192.0.2.10/32'],
    ['2001:db8:ffff::1/33', '2001:db8:8000::/33'],
    ['2001:db8::1/128', '2001:db8::1/128'],
  ])('returns for %s the network %s', (address, network) => {
    const { octets, prefixLength } = networkOf(parseCidr(address));
    expect(formatCidr(octets, prefixLength)).toBe(network);
  });

  it('returns a network that contains the address and has no host bits', () =>
    fc.assert(
      fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), fc.nat(), (text, length) => {
        const address = parseCidr(`${text}/${length % (text.includes(':') ? 129 : 33)}`);
        const network = networkOf(address);
        expect(isNetwork(network)).toBe(true);
        expect(isWithin(address, network)).toBe(true);
        expect(network.prefixLength).toBe(address.prefixLength);
      }),
    ));
});

describe('isUnicast', () => {
  it.each(['10.0.0.1', '223.255.255.1', '240.0.0.1', 'fe80::1', '2001:db8::'])('accepts %s', (text) =>
    expect(isUnicast(parseIpAddress(text))).toBe(true),
  );
  it.each(['0.0.0.0', '224.0.0.1', '239.1.1.1', '::', 'ff02::1'])('rejects %s', (text) =>
    expect(isUnicast(parseIpAddress(text))).toBe(false),
  );
});
