import fc from 'fast-check';
import { putS32, putU16, putU32 } from 'netlink';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { decodeAddress, encodeAddress } from '../../../../src/node/netlink/address.ts';
import {
  type Attribute,
  encodeAttributes,
  encodeString,
  listAttributes,
} from '../../../../src/node/netlink/attributes.ts';
import { encodeBond } from '../../../../src/node/netlink/bond.ts';
import { neighborTable, ruleTable } from '../../../../src/node/netlink/entries.ts';
import { decodeLink, encodeLink, encodeLinkChange, encodeNewLink } from '../../../../src/node/netlink/link.ts';
import {
  decodeRoute,
  encodeRoute,
  findRoutes,
  isDefaultRoute,
  leadsAsWanted,
} from '../../../../src/node/netlink/route.ts';
import { RequestSocket } from '../../../../src/node/netlink/socket.ts';
import { decodeVfInfos } from '../../../../src/node/netlink/vf-settings.ts';
import { encodeVrf } from '../../../../src/node/netlink/vrf.ts';
import { completeTable, connectKernel } from '../../../doubles/netlink-kernel.ts';

const attribute = (type: number, value: Uint8Array | Attribute[]): Attribute => ({ type, value });
const encode = (attributes: Attribute[]) => Buffer.concat(encodeAttributes(attributes));
const linkMessage = (attributes: Attribute[]) => Buffer.concat(encodeLink(7, attributes, { up: true }));
const invalid = expect.objectContaining({ code: 'netlink-invalid' });

it('netlink attributes of any length are unchanged by encoding and decoding', () =>
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.integer({ min: 1, max: 0x3fff }), fc.uint8Array())), (pairs) => {
      const stream = encode(pairs.map(([type, value]) => attribute(type, value)));
      expect(listAttributes(stream).map(({ type, data }) => [type, Uint8Array.from(data)])).toEqual(pairs);
    }),
  ));

describe('decodeLink', () => {
  it('omits what the kernel does not report, and skips unknown attributes', () => {
    const message = linkMessage([
      attribute(3, encodeString('tun0')),
      attribute(999, Buffer.from('?')),
      attribute(16, Buffer.of(250)),
    ]);
    expect(Object.keys(decodeLink(message)).sort()).toEqual(
      ['altNames', 'carrier', 'flags', 'index', 'mtuBytes', 'name', 'up'].sort(),
    );
  });

  it('rejects a number of unexpected length', () => {
    const read = (type: number, value: Uint8Array) => () => decodeLink(linkMessage([attribute(type, value)]));
    expect(read(50, Buffer.alloc(2))).toThrow(RangeError);
    expect(read(33, Buffer.alloc(4))).toThrow(RangeError);
  });

  it('reads all bits of a number', () => {
    expect(decodeLink(linkMessage([attribute(51, putU32(0xfedcba98))])).maxMtuBytes).toBe(0xfedcba98);
  });

  it('reads the MTU limits, where 0 means no limit', () => {
    const limits = (min: number, max: number) =>
      decodeLink(linkMessage([attribute(50, putU32(min)), attribute(51, putU32(max))]));
    expect(limits(68, 9216)).toMatchObject({ minMtuBytes: 68, maxMtuBytes: 9216 });
    expect(limits(68, 0)).not.toHaveProperty('maxMtuBytes');
  });

  it('reads whether the LACP partner of an 802.3ad bond port is in sync', () => {
    const port = (kind: string, data: Attribute[]) =>
      decodeLink(linkMessage([attribute(18, encode([attribute(4, encodeString(kind)), attribute(5, encode(data))]))]))
        .lacpPartnerInSync;
    const partner = (state: number) => [attribute(7, Buffer.of(0x3f)), attribute(8, Buffer.of(state, 0))];
    // As in the kernel: aggregated; after a time-out (EXPIRED); without a partner from the start.
    expect([0x3d, 0x37, 0x01].map((state) => port('bond', partner(state)))).toEqual([true, false, false]);
    expect([port('bond', []), port('bridge', partner(0x3d))]).toEqual([undefined, undefined]);
  });
});

describe('bond messages', () => {
  const info = (message: Uint8Array[]) => {
    const [, data] = listAttributes(
      listAttributes(Buffer.concat(message).subarray(16)).at(-1)?.data ?? Buffer.alloc(0),
    );
    return listAttributes(data?.data ?? Buffer.alloc(0)).map(({ type, data: value }) => [type, [...value]]);
  };

  it('contain mode, monitoring interval and fail_over_mac', () => {
    const plain = { name: 'bond0', mode: '802.3ad', miimonMs: 100 } as const;
    expect(info(encodeNewLink(plain, 'bond', encodeBond(plain)))).toEqual([
      [1, [4]],
      [3, [...putU32(100)]],
    ]);
    const backup = encodeNewLink(plain, 'bond', encodeBond({ ...plain, mode: 'active-backup', failOverMac: 'active' }));
    expect(info(backup)).toContainEqual([1, [1]]);
    expect(info(backup)).toContainEqual([13, [1]]);
  });

  it.each([
    ['bond', [0, 0], true],
    ['bond', [1, 0], false],
    ['bond', [0, 2], false],
    ['bond', [], false],
    ['bridge', [0, 0], undefined],
  ])('report for a member of a %s with state and link %j whether it is active: %s', (kind, values, isActive) => {
    const data = values.map((value, index) => attribute(index + 1, Buffer.of(value)));
    const message = linkMessage([attribute(18, [attribute(4, encodeString(kind)), attribute(5, data)])]);
    expect(decodeLink(message).isActiveMember).toBe(isActive);
  });
});

it('a message that creates a VRF contains its table number', () => {
  const payload = Buffer.concat(encodeNewLink({ name: 'red' }, 'vrf', encodeVrf(0xffffffff)));
  expect(decodeLink(payload)).toMatchObject({ name: 'red', kind: 'vrf', vrfTable: 0xffffffff });
});

describe('encodeLinkChange', () => {
  it.each([
    { name: 'a/b' },
    { mtuBytes: 0 },
    { hardwareAddress: 'ff:ff:ff:ff:ff:ff' },
    { alias: 'x'.repeat(300) },
    { master: -1 },
    { broadcastAddress: 'ff'.repeat(40) },
  ])('rejects %j', (change) => expect(() => encodeLinkChange(1, change)).toThrow(invalid));

  it('changes only the given flags', () => {
    const flagsAndMask = (change: object) => Buffer.concat(encodeLinkChange(1, change)).subarray(8, 16);
    expect(flagsAndMask({ mtuBytes: 1500 })).toEqual(Buffer.alloc(8));
    expect(flagsAndMask({ up: true })).toEqual(Buffer.concat([putU32(1), putU32(1)]));
    expect(flagsAndMask({ up: false })).toEqual(Buffer.concat([putU32(0), putU32(1)]));
    const flags = { noArp: true, allMulticast: false };
    expect(flagsAndMask({ flags })).toEqual(Buffer.concat([putU32(0x80), putU32(0x280)]));
    expect(flagsAndMask({ up: true, flags })).toEqual(Buffer.concat([putU32(0x81), putU32(0x281)]));
  });
});

describe('address messages', () => {
  it('contain the local end of a point-to-point link', () => {
    const header = Buffer.concat([Buffer.of(2, 32, 0x80, 253), putU32(4)]);
    const ends = [attribute(1, Buffer.of(10, 0, 0, 2)), attribute(2, Buffer.of(10, 0, 0, 1))];
    expect(decodeAddress(Buffer.concat([header, encode(ends)]))).toMatchObject({ cidr: '10.0.0.1/32', scope: 'link' });
  });

  it('have their flags in eight bits or in the wide attribute', () => {
    const narrow = Buffer.concat([Buffer.of(10, 64, 0x40, 0), putU32(4), encode([attribute(1, Buffer.alloc(16, 1))])]);
    expect(decodeAddress(narrow)).toMatchObject({ tentative: true, dadFailed: false });
    const wide = Buffer.concat([narrow, encode([attribute(8, putU32(0x08))])]);
    expect(decodeAddress(wide)).toMatchObject({ tentative: false, dadFailed: true });
  });

  it('are ignored if their address family is neither IPv4 nor IPv6', () => {
    expect(
      decodeAddress(Buffer.concat([Buffer.of(45, 8, 0, 0), putU32(4), encode([attribute(1, Buffer.of(1))])])),
    ).toBeUndefined();
  });

  it.each(['224.0.0.1/24', '::/64', '0.0.0.0/8', '10.0.0.1', '10.0.0.1/40'])('are rejected for %s', (cidr) =>
    expect(() => encodeAddress(1, cidr)).toThrow(invalid),
  );
});

describe('route messages', () => {
  it('are unchanged by encoding and decoding', () => {
    const route = { destination: '::/0', gateway: '2001:db8::1', index: 3, table: 1000, priority: 7 };
    const decoded = decodeRoute(Buffer.concat(encodeRoute(route)))!;
    const gateways = [Buffer.from('20010db8000000000000000000000001', 'hex')];
    expect(decoded).toEqual({ destination: '::/0', links: [3], isUnicast: true, table: 1000, priority: 7, gateways });
    expect(isDefaultRoute(decoded)).toBe(true);
  });

  it('have no link if their destination is unreachable', () => {
    const route = { destination: '0.0.0.0/0', index: 3, table: 10, isUnreachable: true, scope: 'global' } as const;
    const message = Buffer.concat(encodeRoute(route));
    expect(decodeRoute(message)).toMatchObject({ destination: '0.0.0.0/0', links: [], isUnicast: false, table: 10 });
    // Source: `RTN_UNREACHABLE` of Linux `rtnetlink.h`.
    expect(message[7]).toBe(7);
  });

  it('with several next hops and a source are unchanged by encoding and decoding', () => {
    const nextHops = [{ gateway: '192.0.2.1', weight: 256 }, { gateway: '2001:db8::9' }];
    const route = { destination: '198.51.100.0/24', nextHops, source: '192.0.2.7', onlink: true, index: 3 };
    const decoded = decodeRoute(Buffer.concat(encodeRoute(route)))!;
    expect(decoded).toMatchObject({ links: [3, 3], gateways: [{ length: 4 }, { length: 16 }] });
    expect(leadsAsWanted(decoded, route)).toBe(true);
    expect(leadsAsWanted(decoded, { ...route, source: '192.0.2.8' })).toBe(false);
    expect(leadsAsWanted(decoded, { ...route, nextHops: [{ gateway: '192.0.2.2' }] })).toBe(false);
  });

  it('with several next hops are decoded to the links of all hops', () => {
    const hop = (index: number, gateway: Uint8Array) => {
      const attributes = encode([attribute(5, gateway)]);
      return Buffer.concat([putU16(8 + attributes.length), Buffer.of(0, 0), putS32(index), attributes]);
    };
    const hops = Buffer.concat([hop(3, Buffer.of(10, 0, 0, 1)), hop(4, Buffer.of(10, 0, 1, 1))]);
    const message = Buffer.concat([Buffer.of(2, 0, 0, 0, 254, 3, 0, 1), putU32(0), encode([attribute(9, hops)])]);
    const route = decodeRoute(message)!;
    expect(route.links).toEqual([3, 4]);
    expect(isDefaultRoute(route)).toBe(true);
  });

  it('are searched without decoding next hops of other routes and more than 64 of the wanted route', () => {
    const hop = encode([attribute(5, Buffer.of(10, 0, 0, 1))]);
    const good = Buffer.concat([putU16(8 + hop.length), Buffer.of(0, 0), putS32(3), hop]);
    // A gateway that is longer than the rest of its message.
    const broken = Buffer.concat([putU16(12), Buffer.of(0, 0), putS32(3), putU16(99), putU16(5)]);
    const message = (octet: number, hops: Buffer) => {
      const attributes = [attribute(1, Buffer.of(10, octet, 0, 0)), attribute(9, hops)];
      return Buffer.concat([Buffer.of(2, 16, 0, 0, 254, 4, 0, 1), putU32(0), encode(attributes)]);
    };
    const hops = [...Array.from({ length: 64 }, () => good), broken];
    const routes = [message(1, broken), message(2, Buffer.concat(hops))];
    const [found, missing] = findRoutes(routes, 3, [{ destination: '10.2.0.0/16' }, { destination: '10.3.0.0/16' }]);
    expect([found?.gateways?.length, missing]).toEqual([64, undefined]);
    expect(() => findRoutes(routes, 3, [{ destination: '10.1.0.0/16' }])).toThrow(RangeError);
  });

  it('are not default routes if their type is unreachable', () => {
    const message = Buffer.concat([Buffer.of(10, 0, 0, 0, 254, 2, 0, 7), putU32(0)]);
    expect(isDefaultRoute(decodeRoute(message)!)).toBe(false);
  });

  // As with net.ipv4.nexthop_compat_mode=0: the route itself lists no link.
  it('are decoded to the links of a next hop object, or of the members of a group', async () => {
    const route = (family: number, id: number) =>
      Buffer.concat([Buffer.of(family, 0, 0, 0, 254, 3, 0, 1), putU32(0), encode([attribute(30, putU32(id))])]);
    const hop = (id: number, more: Attribute) =>
      Buffer.concat([Buffer.alloc(8), encode([attribute(1, putU32(id)), more])]);
    const member = (id: number) => Buffer.concat([putU32(id), Buffer.alloc(4)]);
    const group = attribute(2, Buffer.concat([member(7), member(8)]));
    const tables: [type: number, payloads: Buffer[]][] = [
      [24, [route(2, 7), route(10, 9), route(2, 10)]],
      [104, [hop(7, attribute(5, putU32(3))), hop(8, attribute(5, putU32(4))), hop(9, group)]],
    ];
    using connection = connectKernel((seq) => completeTable(seq, ...tables[seq - 1]!));
    const routes = await connection.defaultRoutes();
    expect(routes.map(({ destination, links }) => [destination, links])).toEqual([
      ['0.0.0.0/0', [3]],
      ['::/0', [3, 4]],
      ['0.0.0.0/0', []],
    ]);
  });

  it('are dropped while all routes of a node are read, unless they are default routes', async () => {
    const route = (length: number) =>
      Buffer.concat([Buffer.of(2, length, 0, 0, 254, 186, 0, 1), putU32(0), encode([attribute(4, putU32(3))])]);
    const dump = vi.spyOn(RequestSocket.prototype, 'dump');
    onTestFinished(() => dump.mockRestore());
    const payloads = Array.from({ length: 5_000 }, (_, index) => route(index === 4_000 ? 0 : 24));
    using connection = connectKernel((seq) => completeTable(seq, 24, payloads));
    expect(await connection.defaultRoutes()).toMatchObject([{ destination: '0.0.0.0/0', links: [3] }]);
    expect(await dump.mock.results[0]!.value).toHaveLength(1);
  });

  it.each([
    [{ destination: '10.0.0.1/24', index: 1 }, 'bits set after its prefix'],
    [{ destination: 'default', index: 1 }, 'prefix length'],
    [{ destination: '::/0', gateway: '10.0.0.1', index: 1 }, 'gateway 10.0.0.1 is IPv4'],
    [{ destination: '0.0.0.0/0', gateway: '10.0.0.1/24', index: 1 }, 'not an IP address'],
    [{ destination: '0.0.0.0/0', index: 0 }, 'not an interface index'],
    [{ destination: '0.0.0.0/0', index: 1, scope: 256 }, '256 is not the scope'],
    [{ destination: '0.0.0.0/0', index: 1, priority: 2 ** 32 }, 'not the priority'],
  ])('are rejected for %j', (route, message) => expect(() => encodeRoute(route)).toThrow(message));
});

describe('rule and neighbor messages', () => {
  it.each([
    [{ priority: 7, source: '192.0.2.7/32', table: 256 }, '7: from 192.0.2.7/32 in table 256'],
    [{ priority: 7, source: '2001:DB8::/32', destination: '::/0', table: 1 }, '7: from 2001:db8::/32 in table 1'],
    [{ priority: 7, destination: '0.0.0.0/0', table: 1 }, '7: from 0.0.0.0/0 in table 1'],
    [{ priority: 7, destination: '::/0', table: 1 }, '7: from ::/0 in table 1'],
  ])('are unchanged by encoding and decoding: %j', (rule, text) => {
    const decoded = ruleTable.decode(Buffer.concat(ruleTable.encode(rule, 3)))!;
    expect([ruleTable.format(rule), ruleTable.format(decoded)]).toEqual([text, text]);
  });

  it('are ignored if they describe other kinds of rules or neighbors', () => {
    const message = Buffer.concat(neighborTable.encode({ address: '192.0.2.9', macAddress: '02:00:00:00:00:0A' }, 3));
    expect(neighborTable.decode(message)).toEqual({ address: '192.0.2.9', macAddress: '02:00:00:00:00:0a' });
    message.writeUInt16LE(2, 8);
    expect(neighborTable.decode(message)).toBeUndefined();
    const rule = Buffer.concat(ruleTable.encode({ priority: 1, source: '192.0.2.0/24', table: 1 }, 3));
    rule[7] = 6;
    expect(ruleTable.decode(rule)).toBeUndefined();
    expect(() => ruleTable.encode({ priority: 1, table: 1 }, 3)).toThrow('neither source nor destination');
  });
});

describe('decodeVfInfos', () => {
  const words = (...values: number[]) => Buffer.concat(values.map((value) => putU32(value)));
  const mac = (vf: number, hex: string) => Buffer.concat([words(vf), Buffer.from(hex.padEnd(64, '0'), 'hex')]);
  const unknown = 0xffffffff;

  it('reads the VF settings of a PF', () => {
    const full = [
      attribute(1, mac(3, '0200000000cc')),
      attribute(2, words(3, 100, 5)),
      attribute(4, words(3, 1)),
      attribute(5, words(3, 2)),
      attribute(6, words(3, 10, 1000)),
      attribute(9, words(3, 0)),
    ];
    const bare = [attribute(1, mac(0, '')), attribute(2, words(0, 0, 0)), attribute(4, words(0, unknown))];
    const message = linkMessage([attribute(22, [attribute(1, bare), attribute(1, full)])]);
    expect(decodeVfInfos(message)).toEqual([
      { vfIndex: 0 },
      {
        vfIndex: 3,
        hardwareAddress: '02:00:00:00:00:cc',
        vlan: { id: 100, priority: 5 },
        spoofCheck: true,
        trust: false,
        linkState: 'disable',
        minTxRateMbps: 10,
        maxTxRateMbps: 1000,
      },
    ]);
  });

  it.each([
    ['8100', '802.1q'],
    ['88a8', '802.1ad'],
    ['1234', undefined],
  ])('reads the tag protocol 0x%s, in network order, as %s', (hex, protocol) => {
    const info = Buffer.concat([words(3, 100, 5), Buffer.from(`${hex}0000`, 'hex')]);
    const vf = [attribute(2, words(3, 100, 5)), attribute(12, [attribute(1, info)])];
    const message = linkMessage([attribute(22, [attribute(1, vf)])]);
    const vlan = { id: 100, priority: 5, ...(protocol === undefined ? {} : { protocol }) };
    expect(decodeVfInfos(message)).toEqual([{ vfIndex: 3, vlan }]);
  });

  it('omits a VF whose MAC or VLAN is missing if only complete VFs are requested', () => {
    const address = attribute(1, mac(3, '02bb00000003'));
    const vlan = attribute(2, words(3, 0, 0));
    const decode = (...values: Attribute[]) =>
      decodeVfInfos(linkMessage([attribute(22, [attribute(1, values)])]), { whole: true });
    expect(decode(address, vlan)).toEqual([{ vfIndex: 3, hardwareAddress: '02:bb:00:00:00:03' }]);
    expect(decode(attribute(1, mac(3, '')), vlan)).toEqual([{ vfIndex: 3 }]);
    // Absent would mean that the VF has none.
    expect([decode(address), decode(vlan), decode(attribute(2, words(3, 0xffffffff, 0)), address)]).toEqual([
      [],
      [],
      [],
    ]);
  });

  it('returns nothing for a link without VFs', () => {
    expect(decodeVfInfos(linkMessage([]))).toEqual([]);
    expect(decodeVfInfos(linkMessage([attribute(22, [])]))).toEqual([]);
  });
});
