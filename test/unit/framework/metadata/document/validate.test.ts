import { describe, expect, it } from 'vitest';
import { type DeviceMetadata, MetadataError, validateDevices } from '../../../../../src/framework/metadata/index.ts';

const claim = { namespace: 'default', name: 'fast-net', uid: 'u' };
const device: DeviceMetadata = { driver: 'sriov.netdra.dev', pool: 'node-1', name: 'dev-1' };
const check = (more: object) => validateDevices(claim, 'vf', [{ ...device, ...more }]);
const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`a${n}`, { int: n }]));
const ips = (count: number) => Array.from({ length: count }, (_, n) => `192.0.2.${n}/24`);

describe('validateDevices', () => {
  const allowed: [string, object][] = [
    ['nothing but the identity', {}],
    ['the longest names', { driver: `${'a'.repeat(59)}.dev`, pool: 'p'.repeat(253), name: 'n'.repeat(63) }],
    ['a pool of several parts', { pool: 'rack-1/node-1.example' }],
    ['the most attributes', { attributes: many(32) }],
    ['names that no ResourceSlice has', { attributes: { 'vhost-user-path': { string: '/run' }, 'a/b/c': { int: 1 } } }],
    ['names that objects have', { attributes: { constructor: { int: 1 }, toString: { int: 2 } } }],
    ['the longest value of a list', { attributes: { a: { strings: ['ä'.repeat(32)] } } }],
    ['a long text', { attributes: { a: { string: 'x'.repeat(108) }, b: { version: 'x'.repeat(65) } } }],
    ['an empty value', { attributes: { a: { string: '' } } }],
    ['the largest integers', { attributes: { a: { ints: [2n ** 63n - 1n, -(2n ** 63n), 2 ** 53 - 1] } } }],
    ['a version', { attributes: { a: { version: '10.20.30-alpha.0-x+meta.01' } } }],
    ['many values', { attributes: { a: { ints: Array.from({ length: 100 }, (_, n) => n) } } }],
    ['a driver with capitals', { driver: 'A.example' }],
    ['the most addresses', { networkData: { ips: ips(16) } }],
    ['addresses of every kind', { networkData: { ips: ['0.0.0.0/0', '::/0', '::1/128', '2001:db8::1:0:0:1/64'] } }],
    [
      'the longest network names',
      { networkData: { interfaceName: 'i'.repeat(256), hardwareAddress: 'h'.repeat(128) } },
    ],
    ['no network data in it', { networkData: {} }],
  ];
  it.each(allowed.map(([what]) => what))('accepts %s', (what) => {
    expect(check(new Map(allowed).get(what) ?? {})).toBeUndefined();
  });

  const refused: [object, string][] = [
    [{ driver: '' }, 'driver "" is not a DNS name of at most 63 bytes'],
    [{ driver: 'd'.repeat(64) }, 'is not a DNS name of at most 63 bytes'],
    [{ pool: '' }, 'pool "" is not a lower-case DNS name of at most 253 bytes'],
    [{ pool: '/a' }, 'pool "/a" is no'],
    [{ name: 'a.b' }, 'name "a.b" is not a lower-case DNS name of at most 63 bytes'],
    [{ name: '..' }, 'name ".." is no'],
    [{ name: 'n'.repeat(64) }, 'is not a lower-case DNS name of at most 63 bytes'],
    [{ attributes: many(33) }, 'has 33 attributes, but at most 32 are allowed'],
    [{ attributes: { '\ud800': { int: 1 } } }, 'its name needs well-formed text'],
    [
      { attributes: { a: {} } },
      'attribute "a": needs exactly one of int, bool, string, version, ints, bools, strings, versions, but has none',
    ],
    [{ attributes: { a: { int: 1, bool: true } } }, 'but has int, bool'],
    [{ attributes: { a: { quantity: '1Gi' } } }, 'but has quantity'],
    [{ attributes: { a: null } }, 'but has none'],
    [{ attributes: { a: { int: 1.5 } } }, 'attribute "a": int needs a whole number, not 1.5'],
    [{ attributes: { a: { int: Number.NaN } } }, 'int needs a whole number, not NaN'],
    [{ attributes: { a: { int: '1' } } }, 'int needs a whole number, not 1'],
    [{ attributes: { a: { int: 2 ** 53 } } }, 'int 9007199254740992 is beyond 2^53 - 1, where a number is not exact'],
    [{ attributes: { a: { int: 2n ** 63n } } }, 'int 9223372036854775808 does not fit into 64 bits'],
    [{ attributes: { a: { bool: 1 } } }, 'bool must be true or false'],
    [
      { attributes: { a: { versions: ['x'.repeat(65)] } } },
      'attribute "a": version has 65 bytes, but at most 64 are allowed',
    ],
    [{ attributes: { a: { strings: ['ä'.repeat(33)] } } }, 'string has 66 bytes, but at most 64 are allowed'],
    [{ attributes: { a: { string: '\ud800' } } }, 'string needs well-formed text'],
    [{ attributes: { a: { ints: [] } } }, 'ints needs a list of at least one value'],
    [{ attributes: { a: { ints: 1 } } }, 'ints needs a list of at least one value'],
    [{ attributes: { a: { strings: ['ok', 'x'.repeat(65)] } } }, 'string has 65 bytes, but at most 64 are allowed'],
    [
      { networkData: { interfaceName: 'i'.repeat(257) } },
      'networkData.interfaceName has 257 bytes, but at most 256 are allowed',
    ],
    [
      { networkData: { hardwareAddress: 'h'.repeat(129) } },
      'networkData.hardwareAddress has 129 bytes, but at most 128 are',
    ],
    [{ networkData: { ips: ips(17) } }, 'networkData.ips: has 17 addresses, but at most 16 are allowed'],
    [{ networkData: { ips: ['192.0.2.1/24', '192.0.2.1/24'] } }, 'networkData.ips: an address is repeated'],
    ...[
      '192.0.2.1',
      '192.0.2.01/24',
      '192.0.2.1/33',
      '192.0.2.1/024',
      '2001:DB8::1/64',
      '2001:db8:0::1/64',
      'fe80::1%e/64',
    ].map(
      (ip) =>
        [{ networkData: { ips: [ip] } }, `networkData.ips: ${JSON.stringify(ip)} is not a canonical address`] as [
          object,
          string,
        ],
    ),
    [{ networkData: null }, 'networkData needs an object with a list of ips'],
    [{ networkData: { ips: '192.0.2.1/24' } }, 'networkData needs an object with a list of ips'],
    [{ networkData: { ips: ['::ffff:10.0.0.1/120'] } }, 'is not a canonical address with prefix length'],
  ];
  it.each(refused.map(([, problem], index) => [problem, index] as const))('rejects: %s', (problem, index) => {
    expect(() => check(refused[index]?.[0] ?? {})).toThrow(problem);
  });

  it('names claim, request and device in its error', () => {
    const bad = { ...device, name: 'dev-2', attributes: { mtu: { int: 0.5 } } };
    const error = (() => {
      try {
        return validateDevices(claim, 'vf/large', [device, bad]);
      } catch (thrown) {
        return thrown;
      }
    })();
    expect(error).toBeInstanceOf(MetadataError);
    expect(error).toMatchObject({
      code: 'metadata-invalid',
      message:
        'claim default/fast-net, request vf/large, device node-1/dev-2: attribute "mtu": int needs a whole number, not 0.5',
      claim: 'default/fast-net',
      device: 'dev-2',
    });
  });
});
