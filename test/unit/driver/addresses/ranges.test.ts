import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { leaseName } from '../../../../src/driver/addresses/objects.ts';
import { mostAddresses, numberOf, numbersOf, PoolAddresses } from '../../../../src/driver/addresses/ranges.ts';
import { type AddressPoolSpec, networkAddressPoolSpec } from '../../../../src/driver/api/address-pool.ts';
import { AddressFamily, formatCidr, formatIpAddress, isWithin, parseCidr } from '../../../../src/node/netlink/index.ts';

const { ipv4, ipv6 } = AddressFamily;

function allOf(spec: AddressPoolSpec, family = ipv4 as (typeof AddressFamily)['ipv4' | 'ipv6']): string[] {
  const addresses = new PoolAddresses(spec, family);
  return addresses.except(new Set()).map((address) => {
    const { octets, prefixLength } = addresses.toCidr(address);
    return formatCidr(octets, prefixLength);
  });
}

const last = (spec: AddressPoolSpec, family = ipv6 as (typeof AddressFamily)['ipv4' | 'ipv6']) =>
  allOf(spec, family).at(-1);

describe('PoolAddresses', () => {
  it('omits excluded addresses, and network and broadcast addresses', () => {
    const ranges = [{ network: '192.0.2.0/29' }, { network: '2001:db8::/126' }];
    const spec = { ranges, exclude: ['192.0.2.1', '192.0.2.4/31', '2001:db8::2/127'] };
    expect(allOf(spec)).toEqual(['192.0.2.2/29', '192.0.2.3/29', '192.0.2.6/29']);
    expect(allOf(spec, ipv6)).toEqual(['2001:db8::1/126']);
  });

  it('includes both addresses of a /31 network, and the only one of a /32', () => {
    expect(allOf({ ranges: [{ network: '192.0.2.0/31' }] })).toEqual(['192.0.2.0/31', '192.0.2.1/31']);
    expect(allOf({ ranges: [{ network: '192.0.2.7/32' }] })).toEqual(['192.0.2.7/32']);
  });

  it('stays between first and last of each range, and does not repeat an address of two ranges', () => {
    const first = { network: '192.0.2.0/24', first: '192.0.2.10', last: '192.0.2.12' };
    const second = { network: '192.0.2.0/28', first: '192.0.2.9', last: '192.0.2.11' };
    expect(allOf({ ranges: [first, second] })).toEqual([
      '192.0.2.10/24',
      '192.0.2.11/24',
      '192.0.2.12/24',
      '192.0.2.9/28',
    ]);
    expect(allOf({ ranges: [{ ...first, first: '192.0.2.13' }] })).toEqual([]);
  });

  it(`is limited to ${mostAddresses} addresses of a large network`, () => {
    expect(last({ ranges: [{ network: '2001:db8::/64' }] })).toBe('2001:db8::1000/64');
    expect(last({ ranges: [{ network: '10.0.0.0/8' }] }, ipv4)).toBe('10.0.16.0/8');
    expect(last({ ranges: [{ network: '2000::/8' }], exclude: ['2000::/9'] })).toBe('2080::fff/8');
  });

  it('omits given addresses from its list, and reports whether an address belongs to the pool', () => {
    const addresses = new PoolAddresses({ ranges: [{ network: '192.0.2.0/29' }], exclude: ['192.0.2.2'] }, ipv4);
    const taken = new Set([numberOf(Uint8Array.of(192, 0, 2, 4))]);
    const hosts = addresses.except(taken).map((address) => addresses.toCidr(address).octets[3]);
    expect(hosts).toEqual([1, 3, 5, 6]);
    expect(
      ['192.0.2.1/29', '192.0.2.2/29', '192.0.2.1/24', '192.0.2.9/29'].map((each) => addresses.has(parseCidr(each))),
    ).toEqual([true, false, false, false]);
  });

  const network = fc
    .tuple(fc.integer({ min: 0, max: 255 }), fc.integer({ min: 24, max: 32 }))
    .map(([host, prefix]) => formatCidr(Uint8Array.of(192, 0, 2, host - (host % 2 ** (32 - prefix))), prefix));
  const address = fc.integer({ min: 0, max: 255 }).map((host) => `192.0.2.${host}`);

  it('contains exactly the addresses of its ranges that are not excluded', () =>
    fc.assert(
      fc.property(
        fc.array(network, { minLength: 1, maxLength: 4 }),
        fc.array(fc.oneof(network, address), { maxLength: 6 }),
        (networks, exclude) => {
          const spec = networkAddressPoolSpec.parse({ ranges: networks.map((each) => ({ network: each })), exclude });
          const found = allOf(spec).map((cidr) => cidr.split('/')[0]);
          const covers = (outer: string, host: string) =>
            isWithin(parseCidr(`${host}/32`), parseCidr(outer.includes('/') ? outer : `${outer}/32`));
          const isEnd = (outer: string, host: string) => {
            const { prefixLength, octets } = parseCidr(outer);
            const size = 2 ** (32 - prefixLength);
            const offset = Number(host.split('.')[3]) - (octets[3] ?? 0);
            return size > 2 && (offset === 0 || offset === size - 1);
          };
          const wanted = Array.from({ length: 256 }, (_, host) => `192.0.2.${host}`).filter(
            (host) =>
              networks.some((each) => covers(each, host) && !isEnd(each, host)) &&
              !exclude.some((each) => covers(each, host)),
          );
          expect(found.toSorted()).toEqual(wanted.toSorted());
        },
      ),
    ));
});

describe('numbersOf', () => {
  const octetsOf = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });

  it('returns all addresses of one family as numbers, and ignores invalid text', () =>
    fc.assert(
      fc.property(fc.array(octetsOf(4)), fc.array(octetsOf(16)), (all4, all6) => {
        const texts = [...all4, ...all6].map((octets) => `${formatIpAddress(octets)}/${octets.length}`);
        const mixed = [...texts, 'x', '::zz/64'];
        expect(numbersOf(mixed, ipv4)).toEqual(new Set(all4.map(numberOf)));
        expect(numbersOf(mixed, ipv6)).toEqual(new Set(all6.map(numberOf)));
      }),
    ));

  it.each(['::', '::1', '1::', '2001:db8::7', '1:2:3:4:5:6:7:8'])('reads the IPv6 address %s', (text) => {
    expect([...numbersOf([`${text}/64`], ipv6)]).toEqual([numberOf(parseCidr(`${text}/64`).octets)]);
  });
});

describe('networkAddressPoolSpec', () => {
  it.each([
    [{ ranges: [] }, /ranges/],
    [{ ranges: [{ network: '192.0.2.1/24' }] }, /a network with prefix length/],
    [{ ranges: [{ network: '0.0.0.0/0' }] }, /at least 8 bits/],
    [{ ranges: [{ network: '224.0.0.0/24' }] }, /unicast/],
    [{ ranges: [{ network: 'ff00::/64' }] }, /unicast/],
    [{ ranges: [{ network: '::/64' }] }, /unicast/],
    ...['0.1.0.0/16', '127.0.0.0/8', '169.254.1.0/24', '255.255.255.255/32', '::1/128', 'fe80::/64'].map(
      (network): [object, RegExp] => [{ ranges: [{ network }] }, /unicast/],
    ),
    [{ ranges: [{ network: '192.0.2.0/24', first: '192.0.2.9', last: '192.0.2.3' }] }, /first.*not be after last/s],
    [{ ranges: [{ network: '2001:db8::/64', first: '2001:db8::10', last: '2001:db8::9' }] }, /not be after last/],
    [{ ranges: [{ network: '192.0.2.0/24', first: '192.0.3.1' }] }, /first.*an address of the network/s],
    [{ ranges: [{ network: '192.0.2.0/24', last: '2001:db8::1' }] }, /last.*an address of the network/s],
    [{ ranges: [{ network: '192.0.2.0/24' }], exclude: ['192.0.2.1/24'] }, /exclude/],
    [{ ranges: Array.from({ length: 17 }, () => ({ network: '192.0.2.0/24' })) }, /ranges/],
    [{ ranges: [{ network: '192.0.2.0/24', gateway: '192.0.2.1' }] }, /gateway/],
  ])('rejects %j', (spec, message) => {
    expect(() => networkAddressPoolSpec.parse(spec)).toThrow(message);
  });

  it('accepts a range of one address, and an IPv6 network that begins with zeros', () => {
    const one = { network: '2001:db8::/64', first: '2001:db8::9', last: '2001:db8:0::9' };
    const { success } = networkAddressPoolSpec.safeParse({ ranges: [one, { network: '64:ff9b:1::/48' }] });
    expect(success).toBe(true);
  });
});

it('leaseName gives each address one valid object name', () => {
  const nameOf = (cidr: string) => leaseName('lan', parseCidr(cidr).octets);
  expect(nameOf('192.0.2.10/24')).toBe('lan.192.0.2.10');
  expect(nameOf('2001:db8::/64')).toBe('lan.2001-0db8-0000-0000-0000-0000-0000-0000');
});
