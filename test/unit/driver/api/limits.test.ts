import { describe, expect, it } from 'vitest';
import { fromClaim, fromClass } from '../claims/driver-bench.ts';
import { resolve } from './claim-with.ts';

describe('class limits', () => {
  const limited = (limits: object) => fromClass({ overridable: ['vf.vlan'], limits });

  it.each([
    { addressRanges: ['192.0.2.0/24'] },
    { maxAddresses: 1 },
    { routes: [] },
    { maxRoutes: 0 },
    { addressPools: ['lan'] },
  ])('reject delegating %j to another component, unless the class allows it', (limits) => {
    const [limit] = Object.keys(limits);
    expect(() => resolve([fromClass({ limits }), fromClaim({ attach: 'observe' })])).toThrow(
      `claim default/fast-net sets attach to observe, with which another component chooses addresses and routes, and limits.${limit}`,
    );
    const allowed = [fromClass({ limits, overridable: ['attach'] }), fromClass({ limits, attach: 'observe' })];
    for (const each of allowed)
      expect(resolve([each, fromClaim({ attach: 'observe' })])).toEqual({ attach: 'observe' });
  });

  it.each([
    ['ipam', { ipam: { type: 'static' } }],
    ['cni', { attach: 'cni', cni: { cniVersion: '1.0.0', name: 'n', type: 'macvlan' } }],
    ['networkAttachmentDefinition', { attach: 'cni', networkAttachmentDefinition: { name: 'n' } }],
  ] as const)(
    'reject %s that only the operator opened, because plugins would choose addresses, unless the class allows that',
    (field, fields) => {
      for (const limits of [{ addressRanges: ['192.0.2.0/24'] }, { addressPools: ['lan'] }]) {
        expect(() => resolve([fromClass({ limits }), fromClaim(fields)], [field])).toThrow(
          `claim default/fast-net sets ${field}, with which plugins choose addresses and routes, and limits.${Object.keys(limits)}`,
        );
        const allowed = [fromClass({ limits, overridable: [field] }), fromClass({ limits, ...fields })];
        for (const each of allowed) expect(resolve([each, fromClaim(fields)], [field])).toEqual(fields);
      }
      expect(resolve([fromClass({ limits: { maxDevices: 1 } }), fromClaim(fields)], [field])).toEqual(fields);
    },
  );

  it("reject keepHostConfig, which moves the host's addresses to the pod, unless the class itself opens the field", () => {
    const limits = { maxRoutes: 4 };
    const fields = { keepHostConfig: true };
    expect(() => resolve([fromClass({ limits }), fromClaim(fields)], ['keepHostConfig'])).toThrow(
      'claim default/fast-net sets keepHostConfig, with which the node chooses addresses and routes, and limits.maxRoutes',
    );
    const allowed = [fromClass({ limits, overridable: ['keepHostConfig'] }), fromClass({ limits, ...fields })];
    for (const each of allowed) expect(resolve([each, fromClaim(fields)], ['keepHostConfig'])).toEqual(fields);
  });

  it('reject an address pool that the class neither opens nor lists in addressPools', () => {
    const fields = { addressPool: { name: 'lan' } };
    const ranges = { addressRanges: ['192.0.2.0/24'] };
    expect(() => resolve([fromClass({ limits: ranges }), fromClaim(fields)], ['addressPool.name'])).toThrow(
      'claim default/fast-net sets addressPool.name, with which a pool chooses addresses and routes, and limits.addressRanges',
    );
    const overridable = ['addressPool.name'];
    const [named, others] = [['lan'], ['wan', 'dmz']].map((addressPools) => ({ ...ranges, addressPools }));
    for (const limits of [ranges, named])
      expect(resolve([fromClass({ limits, overridable }), fromClaim(fields)])).toEqual(fields);
    expect(() => resolve([fromClass({ limits: others, overridable }), fromClaim(fields)])).toThrow(
      'claim default/fast-net sets addressPool.name to lan, and limits.addressPools of its DeviceClass is wan, dmz',
    );
    const past = fromClaim({ addresses: ['192.0.2.7/24'] });
    const administrator =
      'an administrator can set the field in the DeviceClass, or list it in its field `overridable`';
    const closed = (hint: string) =>
      expect.objectContaining({ message: 'claim default/fast-net may not set addresses', hint });
    // The flag does not open addresses.
    expect(() => resolve([fromClass({ limits: named }), past])).toThrow(closed(administrator));
    const choice = `choose a pool with addressPool.name instead, or ${administrator}`;
    expect(() => resolve([fromClass({ limits: named, overridable }), past])).toThrow(closed(choice));
    expect(() => resolve([fromClass({ limits: named }), past], ['addressPool.name'])).toThrow(closed(choice));
    expect(
      resolve([fromClass({ limits: { addressPools: ['lan'] } }), fromClaim(fields)], ['addressPool.name']),
    ).toEqual(fields);
    const observed = fromClaim({ ...fields, attach: 'observe' });
    expect(() => resolve([fromClass({ limits: { addressPools: ['lan'] } }), observed], ['addressPool.name'])).toThrow(
      'claim default/fast-net sets attach to observe, with which another component chooses addresses and routes, and limits.addressPools',
    );
    const both = [...overridable, 'addresses'];
    expect(resolve([fromClass({ limits: named, overridable: both }), past])).toEqual({ addresses: ['192.0.2.7/24'] });
    expect(() => resolve([fromClaim({ addressPool: { key: 'db' } })], ['addressPool.key'])).toThrow(
      'addressPool.name: is needed, and neither claim nor DeviceClass sets it',
    );
  });

  it('reject settings that let routers assign addresses, unless the class itself opens these settings', () => {
    const limits = { addressRanges: ['192.0.2.0/24'] };
    const acceptRa = 'net.ipv6.conf.IFNAME.accept_ra';
    const asked = { sysctls: { [acceptRa]: '2' } };
    expect(() => resolve([fromClass({ limits }), fromClaim(asked)], ['sysctls'])).toThrow(
      `claim default/fast-net sets ${acceptRa}, with which routers choose addresses and routes, and limits.addressRanges`,
    );
    const allowed = [fromClass({ limits, overridable: ['sysctls'] }), fromClass({ limits, ...asked })];
    for (const each of allowed) expect(resolve([each, fromClaim(asked)], ['sysctls'])).toEqual(asked);
    const slaac = { slaac: { waitSeconds: 5 } };
    expect(() => resolve([fromClass({ limits }), fromClaim(slaac)], ['slaac'])).toThrow(
      'claim default/fast-net sets slaac, with which routers choose addresses and routes, and limits.addressRanges',
    );
    expect(() => resolve([fromClass({}), fromClaim(slaac)])).toThrow('claim default/fast-net may not set slaac');
    const off = { sysctls: { [acceptRa]: '0' } };
    expect(resolve([fromClass({ limits }), fromClaim(off)], ['sysctls'])).toEqual(off);
  });

  it.each([
    [{ vlanRanges: ['100-199', '300'] }, { vf: { vlan: 100 } }, { vf: { vlan: 200 } }, 'vlanRanges'],
    [{ vlanRanges: ['100-199', '300'] }, { vf: { vlan: 300 } }, { vf: { vlan: 0 } }, 'vlanRanges'],
    [
      { addressRanges: ['192.0.2.0/25', '2001:db8::/64'] },
      { addresses: ['192.0.2.127/24', '2001:db8::1/48'] },
      { addresses: ['192.0.2.1/24', '192.0.2.128/24'] },
      'addressRanges',
    ],
    [
      { routes: ['192.0.2.0/24', '2001:db8::/32'] },
      { addresses: ['192.0.2.127/24', '2001:db8::1/48', '203.0.113.1/32', '2001:db9::1/128'] },
      { addresses: ['192.0.2.127/23'] },
      'routes',
    ],
    [
      { routes: ['192.0.2.0/24'] },
      { addresses: ['192.0.2.127/24'] },
      { addresses: ['192.0.2.127/24', '2001:db8::1/64'] },
      'routes',
    ],
    [
      { addressRanges: ['192.0.2.0/24', '2001:db8::/48'], routes: ['198.51.100.0/24'], maxRoutes: 0 },
      { addresses: ['192.0.2.10/24', '192.0.2.11/28', '2001:db8::1/64'] },
      { addresses: ['192.0.2.10/1'] },
      'routes',
    ],
    [
      { addressRanges: ['192.0.2.0/25'], routes: ['192.0.2.0/24'], maxRoutes: 1 },
      { addresses: ['192.0.2.10/24', '192.0.2.11/25'] },
      { addresses: ['192.0.2.10/23'] },
      'routes',
    ],
    [
      { addressRanges: ['192.0.2.0/25'], maxRoutes: 1 },
      { addresses: ['192.0.2.10/24'], routes: [] },
      { addresses: ['192.0.2.10/24'], routes: [{ destination: '198.51.100.0/24' }] },
      'maxRoutes',
    ],
    [
      { addressRanges: ['2001:db8::/64'], maxRoutes: 0 },
      { addresses: ['2001:db8::10/64'] },
      { addresses: ['2001:db8::10/63'] },
      'maxRoutes',
    ],
    [
      { maxRoutes: 0 },
      { addresses: ['192.0.2.10/32', '2001:db8::10/128'] },
      { addresses: ['192.0.2.10/9'] },
      'maxRoutes',
    ],
    [
      { routes: ['0.0.0.0/0'] },
      { routes: [{ destination: '0.0.0.0/0' }, { destination: '10.1.0.0/24' }] },
      { routes: [{ destination: '::/0' }] },
      'routes',
    ],
    [
      { maxAddresses: 1 },
      { addresses: ['192.0.2.1/24'] },
      { addresses: ['192.0.2.1/24', '192.0.2.2/24'] },
      'maxAddresses',
    ],
    // Gateways are not limited, and link-local destinations are.
    [
      { routes: ['198.51.100.0/24', '2001:db8::/32'] },
      {
        routes: [
          { destination: '198.51.100.0/25', gateway: '169.254.1.1' },
          { destination: '2001:db8:1::/48', gateway: 'fe80::1' },
        ],
      },
      { routes: [{ destination: '169.254.0.0/16' }, { destination: 'fe80::/64' }] },
      'routes',
    ],
    [{ maxRoutes: 0 }, { routes: [] }, { routes: [{ destination: '198.51.100.0/24' }] }, 'maxRoutes'],
  ])('%j allow a claim to set %j, but not %j', (limits, allowed, refused, name) => {
    expect(resolve([limited(limits), fromClaim(allowed)])).toEqual(allowed);
    expect(() => resolve([limited(limits), fromClaim(refused)])).toThrow(`and limits.${name} of its DeviceClass is `);
  });

  describe('on VLANs', () => {
    it.each(['200-100', '4095', '4095-5000', '9999', '1-10000', '100-', '0-0', '01', '1-2-3', ''])(
      'cannot be %j',
      (range) => {
        expect(() => resolve([fromClass({ limits: { vlanRanges: [range] } })])).toThrow(
          `${JSON.stringify(range)} is not a VLAN id from 0 to 4094, or a range such as 100-199`,
        );
      },
    );

    it.each(['0', '0-100', '4094', '1-4094', '1-4095', '7-7'])('can be %j', (range) => {
      const config = fromClass({ overridable: ['vf.vlan'], limits: { vlanRanges: [range] } });
      const vf = { vlan: Math.min(4094, Number(range.split('-').at(-1))) };
      expect(resolve([config, fromClaim({ vf })])).toEqual({ vf });
    });
  });

  it('are combined from all configuration entries of the class', () => {
    const [ranges, routes] = [limited({ addressRanges: ['192.0.2.0/24'] }), limited({ maxRoutes: 0 })];
    const inside = { addresses: ['192.0.2.10/24'] };
    expect(resolve([ranges, routes, fromClaim(inside)])).toEqual(inside);
    const narrower = limited({ addressRanges: ['192.0.2.0/25'] });
    expect(() => resolve([ranges, narrower, routes, fromClaim(inside)])).toThrow('limits.maxRoutes');
  });

  it('apply to the sum of all configuration entries of a claim', () => {
    const config = [
      limited({ addressRanges: ['192.0.2.0/25'], maxRoutes: 1 }),
      fromClaim({ routes: [{ destination: '198.51.100.0/24' }] }),
      fromClaim({ addresses: ['192.0.2.10/24'] }),
    ];
    expect(() => resolve(config)).toThrow('limits.maxRoutes of its DeviceClass is 1');
  });

  it.each([
    [
      { addressRanges: ['192.0.2.0/24'], routes: ['198.51.100.0/24'] },
      '192.0.2.10/8',
      'claim default/fast-net sets addresses to 192.0.2.10/8, which adds a route to 192.0.0.0/8, and limits.routes of its DeviceClass is 198.51.100.0/24',
    ],
    [
      { addressRanges: ['2001:db9::/64'], maxRoutes: 0 },
      '2001:db9::1/32',
      'claim default/fast-net sets 1 route, including 2001:db9::/32 of its address 2001:db9::1/32, and limits.maxRoutes of its DeviceClass is 0',
    ],
    [
      { addressRanges: ['0.0.0.0/0'] },
      '192.0.2.10/1',
      'claim default/fast-net may not set the address 192.0.2.10/1, which adds a route to 128.0.0.0/1, a part of a default route',
    ],
    [
      {},
      '10.1.99.99/8',
      'claim default/fast-net may not set the address 10.1.99.99/8, which adds a route to 10.0.0.0/8, a network of the node',
    ],
  ])(
    '%j: the error about address %s names the network that the kernel adds a route for',
    (limits, address, message) => {
      const refused = () => resolve([limited(limits), fromClaim({ addresses: [address] })]);
      expect(refused).toThrow(message);
      expect(refused).toThrow(
        expect.objectContaining({
          code: 'config-invalid',
          hint: expect.stringMatching(/limits\.(addressRanges|routes)/),
        }),
      );
    },
  );

  it.each([
    '0.0.0.0/0',
    '::/0',
    '0.0.0.0/1',
    '64.0.0.0/2',
    '128.0.0.0/7',
    '2000::/3',
    '2000::/6',
    '10.1.2.0/24',
    '10.0.0.0/8',
    '2001:db8:1::/80',
  ])('exclude routes to %s by default', (destination) => {
    expect(() => resolve([fromClaim({ routes: [{ destination }] })])).toThrow(
      /may not set a route to \S+, (a default route|a part of a default route|a network of the node)$/,
    );
    expect(() => resolve([fromClaim({ routes: [{ destination, table: 100 }] })])).toThrow(/may not set a route to/);
    expect(resolve([fromClass({ routes: [{ destination }] })])).toEqual({ routes: [{ destination }] });
  });

  it('allow routes to all local IPv6 networks by default', () => {
    const routes = [{ destination: 'fc00::/7' }];
    expect(resolve([fromClaim({ routes })])).toEqual({ routes });
  });

  it.each([
    '192.0.2.10/0',
    '192.0.2.10/1',
    '192.0.2.10/7',
    '2001:db8::1/3',
    '2001:db8::1/0',
    '2001:db8::1/1',
    '10.1.2.10/24',
    '10.1.99.99/8',
    '2001:db8:1::9/80',
    '2001:db8:1::9/48',
  ])('on routes cover the network of an address as well: %s is rejected', (address) => {
    const addresses = [address];
    expect(() => resolve([fromClaim({ addresses })])).toThrow(
      /may not set the address \S+, which adds a route to \S+, (a default route|a part of a default route|a network of the node)$/,
    );
    expect(resolve([fromClass({ addresses })])).toEqual({ addresses });
    const routes = ['0.0.0.0/0', '::/0'];
    expect(resolve([limited({ routes }), fromClaim({ addresses })])).toEqual({ addresses });
  });

  it('allow an address in a node network that addressRanges of the class lists', () => {
    const addresses = ['10.1.2.10/16'];
    expect(resolve([limited({ addressRanges: ['10.1.0.0/16'] }), fromClaim({ addresses })])).toEqual({ addresses });
  });
});
