import fc from 'fast-check';
import { formatCidr, networkOf, parseCidr } from '../../src/node/netlink/cidr.ts';
import { codePoint } from './code-point.ts';

/** Of each kind of value some are valid, some just invalid, and some of another kind. */
const oddity = fc.oneof(
  fc.constantFrom<unknown>(null, true, false, 0, -1, 1.5, '', ' ', [], {}, [null], { a: 1 }, 'x'.repeat(300)),
  fc.string({ unit: codePoint, maxLength: 20 }),
  fc.double({ noNaN: true }),
  fc.jsonValue({ maxDepth: 2 }),
);
const mostly = <T>(right: fc.Arbitrary<T>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 6, arbitrary: right as fc.Arbitrary<unknown> }, { weight: 1, arbitrary: oddity });
const number = (...near: number[]) =>
  fc.oneof(fc.constantFrom(...near.flatMap((each) => [each - 1, each, each + 1, each + 0.5])), fc.integer());

const octet = fc.oneof(fc.integer({ min: 0, max: 255 }), fc.integer({ min: -1, max: 300 }));
const ipv4 = fc.tuple(octet, octet, octet, octet).map((octets) => octets.join('.'));
const ipv6 = fc.oneof(
  fc.ipV6(),
  ipv4.map((address) => `::ffff:${address}`),
  fc.constantFrom(
    '::',
    '::1',
    'fe80::1%eth0',
    '2001:DB8:0::10',
    '::ffff:10.0.0.1',
    '::10.0.0.1',
    'ff02::1',
    '1::2::3',
    '01::',
  ),
);
/** Nearly always an address, of either family. */
export const addressTexts = fc.oneof(
  ipv4,
  ipv6,
  fc.constantFrom('010.0.0.1', '1.2.3', '0x1.2.3.4', '1.2.3.4 ', '٣.1.1.1'),
);
const prefix = fc.oneof(
  fc.integer({ min: 0, max: 130 }).map(String),
  fc.constantFrom('', '-1', '024', '+8', '1e1', ' 8', '8/8'),
);
/** Nearly always an address with prefix length; also of IPv4 in IPv6. */
export const cidrTexts = fc.oneof(
  fc.tuple(addressTexts, prefix).map(([address, length]) => `${address}/${length}`),
  fc.constantFrom(
    '10.0.0.0/8',
    '192.0.2.0/24',
    '2001:db8::/32',
    '0.0.0.0/0',
    '::/0',
    '::ffff:0:0/96',
    '224.0.0.0/4',
    '239.0.0.1/32',
  ),
);
/** Nearly always a hardware address. */
export const macTexts = fc.oneof(
  fc
    .array(
      fc.oneof(
        fc.constantFrom('00', '01', '02', 'fF', 'g0'),
        fc.integer({ min: 0, max: 255 }).map((each) => each.toString(16).padStart(2, '0')),
      ),
      { minLength: 5, maxLength: 7 },
    )
    .map((octets) => octets.join(':')),
  fc.constantFrom('00:00:00:00:00:00', '02-00-00-00-00-01', '020000000001'),
);
const interfaceName = fc.oneof(
  fc.constantFrom(
    'net1',
    'net%d',
    '%d',
    'a%',
    '%d%d',
    '.',
    '..',
    'all',
    'default',
    'a/b',
    'a:b',
    'a b',
    'é',
    'a\n',
    '\u00a0',
    'x'.repeat(15),
    'x'.repeat(16),
    '^[]',
    '!~',
  ),
  fc.string({ unit: 'grapheme-ascii', maxLength: 17 }),
  fc.string({ unit: codePoint, maxLength: 16 }),
);
const kubernetesName = fc.oneof(
  fc.constantFrom('a', 'A', '-', 'a-', 'a.b', 'a..b', 'a\n', 'a'.repeat(253), 'a'.repeat(254)),
  fc.string({ maxLength: 6 }),
);
const resourceName = fc.constantFrom(
  'intel.com/nic',
  'intel.com/',
  '/nic',
  'a/b/c',
  `a/${'b'.repeat(63)}`,
  `a/${'b'.repeat(64)}`,
  `${'a'.repeat(219)}/b`,
  'INTEL/nic',
  'a/_b',
);
const sysctlKey = fc.constantFrom(
  'net.ipv4.conf.IFNAME.arp_ignore',
  'net.ipv6.neigh.IFNAME.x',
  'net.ipv4.conf.all.x',
  'net.ipv4.conf.IFNAME.',
  'net.ipv4.conf.IFNAME.A',
  'net/ipv4/conf/IFNAME/x',
  '__proto__',
);

const some = (fields: Record<string, fc.Arbitrary<unknown>>) =>
  fc.record(Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, mostly(value)])), {
    requiredKeys: [],
  });
const withUnknown = (record: fc.Arbitrary<Record<string, unknown>>) =>
  fc.oneof(
    { weight: 15, arbitrary: record },
    {
      weight: 1,
      arbitrary: fc
        .tuple(record, kubernetesName, oddity)
        .map(([fields, key, value]) => ({ ...fields, [`${key}x`]: value })),
    },
  );

const dialects = some({
  devicePlugin: withUnknown(some({ resourceName, info: fc.boolean() })),
  deviceInfo: some({ resourceName }),
  sriovNetwork: some({ networkAttachmentDefinition: kubernetesName }),
});
const route = withUnknown(
  some({
    destination: cidrTexts,
    gateway: addressTexts,
    nextHops: fc.array(some({ gateway: addressTexts, weight: number(1, 256) }), { minLength: 1, maxLength: 9 }),
    onlink: fc.boolean(),
    source: addressTexts,
    scope: fc.constantFrom('global', 'link', 'host'),
    table: number(1, 253, 255, 0xffffffff),
    metric: number(1, 0xffffffff),
  }),
);

const switchName = fc.constantFrom('rx-gro', 'tx-udp_tnl-segmentation', '', 'a b', 'x'.repeat(31), 'x'.repeat(32), 'é');

/** Contents of a VFConfig, field by field. */
const fields: Record<string, fc.Arbitrary<unknown>> = {
  attach: fc.constantFrom('netlink', 'cni', 'observe', 'Netlink'),
  cni: fc.constantFrom<unknown>({ cniVersion: '1.0.0', type: 'sriov' }, {}),
  networkAttachmentDefinition: withUnknown(some({ name: kubernetesName, namespace: kubernetesName })),
  ipam: fc.constantFrom<unknown>({ type: 'static' }, {}),
  driver: fc.oneof(
    fc.constantFrom('kernel', 'vfio-pci', 'mlx5_vfio_pci', 'igb_uio', 'vfio-pci\n', 'Vfio', 'vfio'),
    fc.constant(`vfio${'x'.repeat(61)}`),
  ),
  vhost: fc.boolean(),
  rdma: fc.boolean(),
  deviceFiles: withUnknown(
    some({
      uid: number(0, 0xfffffffe),
      gid: number(0, 0xfffffffe),
      mode: fc.oneof(fc.constantFrom<unknown>('0660', '600', '060', '0066', '0800', '1777', '66', '0660\n', '', 432)),
    }),
  ),
  numa: fc.constantFrom('report', 'require', 'Require', 'off'),
  vf: withUnknown(
    some({
      vlan: number(0, 4094),
      qos: number(0, 7),
      vlanProto: fc.constantFrom('802.1q', '802.1ad', '802.1Q'),
      spoofCheck: fc.boolean(),
      trust: fc.boolean(),
      linkState: fc.constantFrom('auto', 'enable', 'disable', 'up'),
      minTxRate: number(0, 0xfffffffe),
      maxTxRate: number(0, 0xfffffffe),
    }),
  ),
  interfaceName,
  mtu: number(68, 1500, 65_535),
  macAddress: macTexts,
  addresses: fc.oneof(
    fc.array(mostly(cidrTexts), { maxLength: 3 }),
    fc.array(fc.constant('192.0.2.1/24'), { minLength: 15, maxLength: 18 }),
  ),
  routes: fc.oneof(
    fc.array(mostly(route), { maxLength: 3 }),
    fc.array(fc.constant({ destination: '198.51.100.0/24' }), { minLength: 63, maxLength: 66 }),
  ),
  rules: fc.array(
    mostly(
      withUnknown(
        some({
          priority: number(1, 32_765),
          source: cidrTexts,
          destination: cidrTexts,
          table: number(1, 253, 255, 0xffffffff),
        }),
      ),
    ),
    { maxLength: 3 },
  ),
  vrf: withUnknown(some({ name: interfaceName, table: number(1, 253, 255, 0xffffffff) })),
  neighbors: fc.array(mostly(withUnknown(some({ address: addressTexts, macAddress: macTexts }))), { maxLength: 3 }),
  addressPool: withUnknown(some({ name: kubernetesName, key: kubernetesName })),
  slaac: withUnknown(some({ waitSeconds: number(0, 30), defaultRoute: fc.boolean() })),
  allMulticast: fc.boolean(),
  promiscuous: fc.boolean(),
  keepHostConfig: fc.boolean(),
  offloadLimits: withUnknown(some({ gsoMaxBytes: number(4096, 524_280), groMaxBytesIpv4: number(4096, 524_280) })),
  ethtool: withUnknown(
    some({
      features: fc.dictionary(switchName, fc.oneof(fc.boolean(), fc.constant<unknown>('on')), { maxKeys: 3 }),
      privateFlags: fc.dictionary(switchName, fc.boolean(), { maxKeys: 3 }),
      rings: withUnknown(some({ rx: number(1, 65_536), tx: number(1, 65_536) })),
      channels: withUnknown(some({ combined: number(0, 4_096) })),
      coalescing: withUnknown(some({ rxUsecs: number(0, 65_536), useAdaptiveRx: fc.boolean() })),
    }),
  ),
  bond: withUnknown(
    some({
      name: interfaceName,
      mode: fc.constantFrom('active-backup', '802.3ad', 'balance-alb', 'Active-Backup'),
      miimon: number(10, 10_000),
      failOverMac: fc.constantFrom('none', 'active', 'follow', 'all'),
      primary: fc.constantFrom('vf', 'left', 'left/first', 'Left', '', 'x'.repeat(63), 'x'.repeat(64)),
      primaryReselect: fc.constantFrom('always', 'failure', 'never'),
      xmitHashPolicy: fc.constantFrom('layer2', 'vlan+srcmac', 'layer4'),
      lacpRate: fc.constantFrom('slow', 'fast', 1),
      adSelect: fc.constantFrom('stable', 'count', 'Count'),
      arpInterval: number(100, 60_000),
      arpTargets: fc.array(addressTexts, { maxLength: 17 }),
    }),
  ),
  sysctls: fc.dictionary(
    sysctlKey,
    fc.oneof(number(0), fc.constantFrom<unknown>('1', '1\n', 'a b', '', 'x'.repeat(128), 'x'.repeat(129), true)),
    { maxKeys: 3 },
  ),
  dialects,
};

const head = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig' };

/** Opaque parameters: many are a valid VFConfig, and most are nearly one. In the form that JSON parsing returns. */
export const vfConfigParameters: fc.Arbitrary<Record<string, unknown>> = withUnknown(
  fc
    .subarray(Object.keys(fields), { minLength: 0, maxLength: 3 })
    .chain((names) =>
      fc.record(Object.fromEntries(names.map((name) => [name, mostly(fields[name] ?? fc.constant(1))]))),
    )
    .map((chosen) => ({ ...head, ...chosen })),
).map((parameters) => JSON.parse(JSON.stringify(parameters)));

/** Addresses and prefixes that are often inside of each other's networks, and often just outside. */
const nearAddress = fc.oneof(
  fc.tuple(
    fc.constantFrom('192.0.2.10', '192.0.2.200', '198.51.100.7', '10.1.2.3'),
    fc.constantFrom(0, 1, 2, 8, 16, 23, 24, 25, 31, 32),
  ),
  fc.tuple(
    fc.constantFrom('2001:db8::1', '2001:db8:0:1::1', '2001:db8:1::9', 'fe80::1'),
    fc.constantFrom(0, 1, 2, 32, 47, 48, 63, 64, 127, 128),
  ),
);
const nearAddresses = fc.array(
  nearAddress.map(([address, length]) => `${address}/${length}`),
  { maxLength: 3 },
);
const nearNetworks = nearAddresses.map((addresses) =>
  addresses.map(parseCidr).map((cidr) => formatCidr(networkOf(cidr).octets, cidr.prefixLength)),
);

/** The part of a class's `limits` that is about addresses and routes. */
export const routeLimits = fc.record(
  { addressRanges: nearNetworks, routes: nearNetworks, maxRoutes: fc.integer({ min: 0, max: 3 }) },
  { requiredKeys: [] },
);

/** Opaque parameters with addresses and routes that such limits allow or just not. */
export const routeParameters = fc
  .record(
    { addresses: nearAddresses, routes: nearNetworks.map((all) => all.map((destination) => ({ destination }))) },
    { requiredKeys: [] },
  )
  .map((fields) => ({ ...head, ...fields }));
