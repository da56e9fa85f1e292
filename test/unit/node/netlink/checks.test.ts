import { describe, expect, it } from 'vitest';
import {
  assertAlias,
  assertIndex,
  assertInterfaceName,
  assertMtu,
  parseHardwareAddress,
} from '../../../../src/node/netlink/checks.ts';

const invalid = expect.objectContaining({ code: 'netlink-invalid', hint: expect.any(String) });

describe('assertInterfaceName', () => {
  it.each(['eth0', 'a', '123456789012345', 'net-1.100', 'größe'])('accepts %j', (name) => {
    assertInterfaceName(name);
  });
  it.each(['', '.', '..', '1234567890123456', 'a/b', 'a b', 'a\tb', 'a\n', 'a:b', 'net%d', 'a\0b', 'ääääääää'])(
    'rejects %j',
    (name) => expect(() => assertInterfaceName(name)).toThrow(invalid),
  );
});

describe('parseHardwareAddress', () => {
  it('returns the octets in any case', () => {
    expect([...parseHardwareAddress('02:aB:00:00:00:ff')]).toEqual([2, 0xab, 0, 0, 0, 0xff]);
  });
  it.each(['', '02:00:00:00:00', '02-00-00-00-00-01', '02:00:00:00:00:01:02', '0g:00:00:00:00:01', '2:0:0:0:0:1'])(
    'rejects %j',
    (text) => expect(() => parseHardwareAddress(text)).toThrow(invalid),
  );
  it.each(['01:00:5e:00:00:01', 'ff:ff:ff:ff:ff:ff', '00:00:00:00:00:00'])(
    'rejects %s, which no interface can have',
    (text) => expect(() => parseHardwareAddress(text)).toThrow(invalid),
  );
});

describe('validation of numbers and aliases', () => {
  it.each([67, 65_536, 1500.5, Number.NaN, -1])('rejects the MTU %d', (mtu) =>
    expect(() => assertMtu(mtu)).toThrow(invalid),
  );
  it.each([0, -1, 1.5, 2 ** 31, Number.NaN])('rejects the index %d', (index) =>
    expect(() => assertIndex(index)).toThrow(invalid),
  );
  it('rejects an alias that the kernel would truncate', () => {
    assertAlias('x'.repeat(255));
    expect(() => assertAlias('x'.repeat(256))).toThrow(invalid);
    expect(() => assertAlias('a\0b')).toThrow(invalid);
  });
});
