import { describe, expect, it } from 'vitest';
import { configForDevice } from '../../../../src/driver/api/config.ts';
import { vfConfigSchema } from '../../../../src/driver/api/vf-config.ts';
import {
  type ClaimField,
  type ClosedField,
  claimFields,
  closedFields,
  type VfConfig,
} from '../../../../src/driver/model/index.ts';
import { fromClaim, fromClass } from '../claims/driver-bench.ts';
import { resolve } from './claim-with.ts';

const chain = (name: string) => ({ cniVersion: '1.0.0', name, plugins: [{ type: 'host-device' }] });

/**
 * For every field two values, as a class and a claim may have them; `with` is what the field needs beside it. A field of
 * the schema that is not here fails the test below.
 */
const samples: {
  [F in keyof VfConfig]-?: { values: [VfConfig[F], VfConfig[F]]; with?: VfConfig; merged?: VfConfig[F] };
} = {
  attach: { values: ['observe', 'netlink'] },
  cni: { values: [chain('a'), chain('b')], with: { attach: 'cni' } },
  networkAttachmentDefinition: { values: [{ name: 'a', namespace: 'nets' }, { name: 'b' }], with: { attach: 'cni' } },
  ipam: { values: [{ type: 'static', addresses: [] }, { type: 'dhcp' }] },
  driver: { values: ['kernel', 'vfio-pci'] },
  vhost: { values: [true, false] },
  rdma: { values: [false, true] },
  deviceFiles: {
    values: [
      { uid: 1000, gid: 0xfffffffe, mode: '600' },
      { gid: 107, mode: '0660' },
    ],
  },
  numa: { values: ['require', 'report'] },
  vf: {
    values: [
      { vlan: 7, trust: true },
      { vlan: 8, maxTxRate: 9 },
    ],
    merged: { vlan: 8, trust: true, maxTxRate: 9 },
  },
  interfaceName: { values: ['net1', 'fast%d'] },
  mtu: { values: [1500, 9000] },
  macAddress: { values: ['02:00:00:00:00:01', '02:00:00:00:00:02'] },
  addresses: { values: [['192.0.2.1/24', '2001:db8::1/64'], ['192.0.2.2/24']] },
  routes: {
    values: [
      [{ destination: '0.0.0.0/0', gateway: '192.0.2.1', onlink: true, table: 100, metric: 7, scope: 'global' }],
      [{ destination: '198.51.100.0/24', nextHops: [{ gateway: '192.0.2.1' }, { gateway: '192.0.2.2', weight: 3 }] }],
    ],
  },
  addressPool: {
    values: [{ name: 'lan', key: 'db' }, { name: 'wan' }],
    merged: { name: 'wan', key: 'db' },
  },
  slaac: { values: [{ waitSeconds: 0 }, { waitSeconds: 30, defaultRoute: true }] },
  sysctls: {
    values: [
      { 'net.ipv4.conf.IFNAME.arp_ignore': 1, 'net.ipv6.conf.IFNAME.accept_ra': 0 },
      { 'net.ipv4.conf.IFNAME.arp_ignore': '2' },
    ],
    merged: { 'net.ipv4.conf.IFNAME.arp_ignore': '2', 'net.ipv6.conf.IFNAME.accept_ra': 0 },
  },
  rules: {
    values: [
      [{ priority: 100, source: '192.0.2.7/32', table: 100 }],
      [{ priority: 1, destination: '2001:db8::/64', table: 256 }],
    ],
  },
  vrf: {
    values: [
      { name: 'red', table: 100 },
      { name: 'blue', table: 0xffffffff },
    ],
  },
  neighbors: {
    values: [
      [{ address: '192.0.2.9', macAddress: '02:00:00:00:00:09' }],
      [{ address: '2001:db8::9', macAddress: '02:00:00:00:00:0A' }],
    ],
  },
  allMulticast: { values: [true, false] },
  promiscuous: { values: [false, true] },
  keepHostConfig: { values: [true, false] },
  offloadLimits: { values: [{ gsoMaxBytes: 65_536 }, { groMaxBytes: 65_536, gsoMaxBytesIpv4: 131_072 }] },
  ethtool: {
    values: [
      { features: { 'rx-gro': true, 'tx-tcp-segmentation': false }, privateFlags: { rx_cqe_compress: true } },
      { rings: { rx: 1024, tx: 512 }, channels: { combined: 4 }, coalescing: { rxUsecs: 0, useAdaptiveRx: false } },
    ],
  },
  bond: {
    values: [
      { name: 'bond0', arpInterval: 500, arpTargets: ['192.0.2.1'], primary: 'vf', primaryReselect: 'failure' },
      { name: 'bond1', mode: '802.3ad', miimon: 50, xmitHashPolicy: 'layer3+4', lacpRate: 'fast', adSelect: 'count' },
    ],
  },
  dialects: { values: [{ deviceInfo: { resourceName: 'intel.com/nic' } }, { sriovNetwork: {} }] },
};

const cases = Object.entries(samples) as [keyof VfConfig, (typeof samples)[keyof VfConfig]][];

/** The same for each property of the PF. */
const properties: { [P in keyof NonNullable<VfConfig['vf']>]-?: [unknown, unknown] } = {
  vlan: [7, 8],
  qos: [1, 2],
  vlanProto: ['802.1q', '802.1ad'],
  spoofCheck: [false, true],
  trust: [true, false],
  linkState: ['auto', 'disable'],
  minTxRate: [10, 20],
  maxTxRate: [200, 100],
};

describe('resolveVfConfig', () => {
  it('has a test value for every field of the schema', () => {
    const { apiVersion: _apiVersion, kind: _kind, ...fields } = vfConfigSchema.shape;
    expect(Object.keys(samples).sort()).toEqual(Object.keys(fields).sort());
    expect(Object.keys(properties).sort()).toEqual(Object.keys(fields.vf.unwrap().shape).sort());
  });

  it.each(cases)(
    'takes %s from the class, or from the claim if the class allows overriding, in any order',
    (field, sample) => {
      const { values, with: beside = {}, merged = values[1] } = sample;
      const [ofClass, ofClaim] = values.map((value) => ({ ...beside, [field]: value }));
      const config = [fromClaim(ofClaim ?? {}), fromClass({ ...ofClass, overridable: claimFields })];
      expect(resolve(config)).toEqual({ ...beside, [field]: merged });
      expect(resolve(config.toReversed())).toEqual({ ...beside, [field]: merged });
      expect(resolve([fromClass(ofClass ?? {})])).toEqual(ofClass);
      // What the claim leaves open, the class's value stays for.
      const other = field === 'mtu' ? { rdma: false } : { mtu: 1400 };
      const attach = field === 'attach' || 'attach' in beside ? {} : other;
      expect(resolve([fromClass(ofClass ?? {}), fromClaim(attach)])).toEqual({ ...ofClass, ...attach });
    },
  );

  it.each(Object.entries(properties))('merges vf.%s separately', (property, [ofClass, ofClaim]) => {
    const beside = property === 'qos' || property === 'vlanProto' ? { vlan: 5 } : {};
    const overridable = Object.keys(properties).map((each) => `vf.${each}`);
    const config = [
      fromClass({ vf: { ...beside, [property]: ofClass }, overridable }),
      fromClaim({ vf: { ...beside, [property]: ofClaim } }),
    ];
    expect(resolve(config)).toEqual({ vf: { ...beside, [property]: ofClaim } });
    const other = property === 'linkState' ? { vlan: 9 } : { linkState: 'enable' };
    const kept = [fromClass({ vf: { ...beside, [property]: ofClass }, overridable }), fromClaim({ vf: other })];
    expect(resolve(kept)).toEqual({ vf: { ...beside, [property]: ofClass, ...other } });
  });

  it('applies entries for all requests, for the request itself, and for the base request of a subrequest', () => {
    const config = [
      fromClaim({ mtu: 1400 }),
      fromClaim({ interfaceName: 'net1' }, ['vf']),
      fromClaim({ interfaceName: 'net9' }, ['other']),
      fromClaim({ mtu: 1300 }, ['vf/small']),
    ];
    expect(resolve(config, [], 'vf/large')).toEqual({ mtu: 1400, interfaceName: 'net1' });
    expect(resolve(config, [], 'vf/small')).toEqual({ mtu: 1300, interfaceName: 'net1' });
  });

  it('lets an empty list or false cancel an overridable class setting', () => {
    const overridable = ['routes', 'addresses', 'rdma'];
    const config = [
      fromClass({ routes: [{ destination: '10.0.0.0/8' }], addresses: ['192.0.2.1/24'], rdma: true, overridable }),
      fromClaim({ routes: [], addresses: [], rdma: false, attach: 'observe' }),
    ];
    expect(resolve(config)).toEqual({ routes: [], addresses: [], rdma: false, attach: 'observe' });
  });

  it("ignores other drivers' parameters", () => {
    expect(resolve([{ source: 'FromClaim', driver: 'gpu.example', parameters: { anything: true } }])).toEqual({});
  });
});

const { vf: _vf, networkAttachmentDefinition: _definition, routes: _routes, ...alone } = samples;

/** For each field that a claim may have two values, those of a class and of a claim. */
const valuesOf = {
  ...Object.fromEntries(Object.entries(alone).map(([field, { values }]) => [field, values])),
  ...Object.fromEntries(Object.entries(properties).map(([property, values]) => [`vf.${property}`, values])),
  routes: [[{ destination: '198.51.100.0/24' }], []],
  networkAttachmentDefinition: [{ name: 'prod' }, { name: 'mine' }],
  'networkAttachmentDefinition.namespace': ['infra', 'other'],
  'bond.mode': ['802.3ad', 'balance-rr'],
  'addressPool.name': ['lan', 'wan'],
  'addressPool.key': ['db', 'web'],
} as Record<ClaimField, [unknown, unknown]>;

/** A configuration with one field, and what it does not make sense without. */
function configOf(field: ClaimField, value: unknown): object {
  const [outer = '', inner] = field.split('.');
  if (outer === 'vf' && inner !== undefined) {
    const vlan = inner === 'qos' || inner === 'vlanProto' ? { vlan: 100 } : {};
    return { vf: { ...vlan, [inner]: value } };
  }
  if (outer === 'bond' && inner !== undefined) return { bond: { name: 'bond0', [inner]: value } };
  if (outer === 'addressPool' && inner !== undefined) return { addressPool: { name: 'lan', [inner]: value } };
  if (inner !== undefined) return { attach: 'cni', networkAttachmentDefinition: { name: 'prod', [inner]: value } };
  return { ...(field === 'cni' || field === 'networkAttachmentDefinition' ? { attach: 'cni' } : {}), [field]: value };
}

describe('class settings', () => {
  it.each(Object.entries(valuesOf) as [ClaimField, [unknown, unknown]][])(
    'are final: a claim that sets another %s is rejected with both values',
    (field, [ofClass, ofClaim]) => {
      const own = fromClass(configOf(field, ofClass));
      expect(resolve([own, fromClaim(configOf(field, ofClass))])).toEqual(configOf(field, ofClass));
      const outer = field.split('.')[0] ?? '';
      const parts = field.startsWith('vf.') ? [ofClaim, ofClass] : [];
      const conflicting = [own, fromClaim(configOf(field, ofClaim))];
      const shown =
        parts.length > 0
          ? `to ${JSON.stringify(ofClaim)}, but its DeviceClass sets it to ${JSON.stringify(ofClass)}`
          : '';
      for (const open of [[], closedFields]) {
        expect(() => resolve(conflicting, open)).toThrow(`claim default/fast-net sets ${outer}`);
        expect(() => resolve(conflicting, open)).toThrow(shown);
        expect(() => resolve(conflicting, open)).toThrow(expect.objectContaining({ code: 'config-conflict' }));
      }
    },
  );

  it('cannot be bypassed by a claim with a static address beside the IPAM plugin of the class', () => {
    const ofClass = { ipam: { type: 'whereabouts', range: '10.0.0.0/16' } };
    expect(() => resolve([fromClass(ofClass), fromClaim({ addresses: ['192.0.2.1/24'] })])).toThrow(
      'claim default/fast-net may not set addresses',
    );
    const open = { ...ofClass, overridable: ['addresses'] };
    expect(resolve([fromClass(open), fromClaim({ addresses: ['192.0.2.1/24'] })])).toMatchObject(ofClass);
  });

  it('can be repeated by a claim, in whole or in part, even if several class entries contain them', () => {
    const key = (name: string) => `net.ipv4.conf.IFNAME.${name}`;
    const entries = [
      { [key('rp_filter')]: 2, [key('arp_ignore')]: 0 },
      { [key('arp_ignore')]: 1 },
      { [key('forwarding')]: 1 },
    ];
    const ofClass = entries.map((sysctls, index) =>
      fromClass({ sysctls, vf: index === 0 ? { vlan: 7 } : { trust: true } }),
    );
    const sysctls = Object.assign({}, ...entries);
    const vf = { vlan: 7, trust: true };
    for (const same of [sysctls, { [key('arp_ignore')]: 1 }, {}]) {
      expect(resolve([...ofClass, fromClaim({ sysctls: same, vf })])).toEqual({ sysctls, vf });
    }
    for (const other of [{ [key('arp_ignore')]: 0 }, { ...sysctls, [key('arp_notify')]: 1 }]) {
      expect(() => resolve([...ofClass, fromClaim({ sysctls: other })])).toThrow(
        /sets sysctls to .*, but its DeviceClass sets it to/,
      );
    }
  });

  it('cannot be bypassed by a second configuration entry in the claim', () => {
    const config = [fromClass({ mtu: 1500 }), fromClaim({ mtu: 9000 }), fromClaim({ mtu: 1500 })];
    expect(() => resolve(config)).toThrow('sets mtu to 9000, but its DeviceClass sets it to 1500');
  });

  it.each(['all', 'default'])('limit sysctls to one interface: the interface name %s is rejected', (interfaceName) => {
    const sysctls = { 'net.ipv4.conf.IFNAME.rp_filter': 1 };
    expect(() => resolve([fromClass({ sysctls }), fromClaim({ interfaceName })])).toThrow('interfaceName: ');
  });
});

describe('restricted fields', () => {
  it.each(closedFields)('%s is reserved for the class unless the class or the operator opens it', (field) => {
    const fields = configOf(field, valuesOf[field][0]);
    const beside: Partial<Record<ClosedField, ClosedField>> = {
      'networkAttachmentDefinition.namespace': 'networkAttachmentDefinition',
      'vf.qos': 'vf.vlan',
      'vf.vlanProto': 'vf.vlan',
      'addressPool.key': 'addressPool.name',
    };
    const needed = [field, beside[field] ?? field];
    expect(resolve([fromClass(fields)])).toEqual(fields);
    expect(() => resolve([fromClaim(fields)])).toThrow(`claim default/fast-net may not set `);
    const others = closedFields.filter((other) => other !== field);
    expect(() => resolve([fromClaim(fields)], others)).toThrow(`may not set ${field}`);
    expect(() => resolve([fromClaim(fields), fromClass({ overridable: others })])).toThrow(`may not set ${field}`);
    expect(resolve([fromClaim(fields)], needed)).toEqual(fields);
    expect(resolve([fromClaim(fields), fromClass({ overridable: needed })])).toEqual(fields);
  });

  it('allow a claim to state the default bond mode, unless the class sets another mode', () => {
    const fields = { bond: { name: 'bond0', mode: 'active-backup' } };
    expect(resolve([fromClaim(fields)])).toEqual(fields);
    expect(() => resolve([fromClass({ bond: { name: 'bond0', mode: '802.3ad' } }), fromClaim(fields)])).toThrow(
      'sets bond to {"name":"bond0","mode":"active-backup"}, but its DeviceClass sets it to {"name":"bond0","mode":"802.3ad"}',
    );
  });

  it('are all named in one error if a claim sets several', () => {
    expect(() => resolve([fromClaim({ driver: 'kernel', macAddress: '02:00:00:00:00:01' })])).toThrow(
      /may not set driver, macAddress/,
    );
  });

  it('belong to claimFields, which lists every field of the schema', () => {
    const fields = new Set(claimFields.map((field) => field.split('.')[0]));
    expect([...fields].sort()).toEqual(Object.keys(samples).sort());
  });

  it.each(['overridable', 'limits'])('include %s, which only a class can set', (field) => {
    expect(() => resolve([fromClaim({ [field]: field === 'limits' ? {} : [] })], closedFields)).toThrow(
      `from the claim: parameters: Unrecognized key: "${field}"`,
    );
  });
});

it.each([
  [{ mtu: 'big' }, /from the claim: mtu: /],
  [{ mtu: 1 }, /mtu: .*68/],
  [{ interfaceName: 'a/b' }, /interfaceName: 1 to 15 bytes/],
  [{ interfaceName: 'net%d%d' }, /interfaceName: /],
  [{ interfaceName: 'ä' }, /interfaceName: .*ASCII/],
  [{ addresses: ['::ffff:192.0.2.1/120'] }, /addresses\.0: /],
  [{ interfaceName: '..' }, /interfaceName: /],
  [{ interfaceName: 'x'.repeat(16) }, /interfaceName: /],
  [{ macAddress: '01:00:5e:00:00:01' }, /macAddress: "01:00:5e:00:00:01" is not .*multicast/],
  [{ macAddress: '00:00:00:00:00:00' }, /macAddress: .*nor zero/],
  [{ addresses: ['10.0.0.1'] }, /addresses\.0: "10\.0\.0\.1" is not an address with prefix length/],
  [{ addresses: ['10.0.0.1/33'] }, /addresses\.0: /],
  [{ addresses: ['192.0.2.1/24', '224.0.0.1/24'] }, /addresses\.1: /],
  [{ addresses: ['::/64'] }, /addresses\.0: /],
  [{ addresses: ['fe80::1%eth0/64'] }, /addresses\.0: /],
  [{ addresses: Array(17).fill('192.0.2.1/24') }, /addresses: .*16/],
  [{ routes: [{ destination: 'default' }] }, /routes\.0\.destination: /],
  [{ routes: [{ destination: '10.0.0.1/8' }] }, /routes\.0\.destination: .*no host bits/],
  [
    { routes: [{ destination: '0.0.0.0/0', gateway: 'gw' }] },
    /routes\.0\.gateway: "gw" is not an IPv4 or IPv6 address of a host/,
  ],
  [{ routes: [{ destination: '0.0.0.0/0', gateway: 'fe80::1' }] }, /routes\.0\.gateway: .*same IP version/],
  [JSON.parse('{"sysctls":{"__proto__":1}}'), /__proto__: is not a field or key/],
  [{ colour: 'red' }, /Unrecognized key: "colour"/],
  [{ kind: 'VfConfig' }, /kind: /],
  [{ apiVersion: 'netdra.dev/v9' }, /apiVersion: /],
  [{ attach: 'bridge' }, /attach: .*"netlink"\|"cni"\|"observe"/],
  [{ driver: 'igb_uio' }, /driver: must be kernel, vfio-pci, or a variant such as mlx5_vfio_pci/],
  [{ driver: '../vfio-pci' }, /driver: /],
  [{ driver: 'vfio-pci\n' }, /driver: /],
  [{ vf: { vlan: 4095 } }, /vf\.vlan: .*4094/],
  [{ vf: { qos: 8 } }, /vf\.qos: .*7/],
  [{ vf: { vlanProto: 'qinq' } }, /vf\.vlanProto: .*"802\.1q"\|"802\.1ad"/],
  [{ vf: { spoofcheck: true } }, /vf: Unrecognized key: "spoofcheck"/],
  [{ vf: { trust: 'on' } }, /vf\.trust: .*boolean/],
  [{ vf: { linkState: 'up' } }, /vf\.linkState: .*"auto"\|"enable"\|"disable"/],
  [{ vf: { minTxRate: -1 } }, /vf\.minTxRate: /],
  [{ vf: { maxTxRate: 2 ** 32 - 1 } }, /vf\.maxTxRate: /],
  [{ deviceFiles: { mode: 0o660 } }, /deviceFiles\.mode: must be octal digits in quotes, such as "0660"/],
  [{ deviceFiles: { mode: '1777' } }, /deviceFiles\.mode: must be octal digits from "0000" to "0777"/],
  [{ deviceFiles: { mode: '0680' } }, /deviceFiles\.mode: must be octal digits from "0000" to "0777"/],
  [{ deviceFiles: { uid: -1 } }, /deviceFiles\.uid: /],
  [{ deviceFiles: { gid: 2 ** 32 - 1 } }, /deviceFiles\.gid: .*4294967294/],
  [{ deviceFiles: { uid: 1000, gid: 1000, mode: '0460' } }, /deviceFiles\.mode: must let the owner read and write/],
  [{ deviceFiles: { gid: 1000, mode: '0600' } }, /deviceFiles\.mode: must let the group read and write, as "0660"/],
  [{ ethtool: { features: { 'rx-gro': 'on' } } }, /ethtool\.features\.rx-gro: /],
  [{ ethtool: { features: { 'rx gro': true } } }, /ethtool\.features\.rx gro: must be a name of 1 to 31 letters/],
  [
    { ethtool: { privateFlags: Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`f${at}`, true])) } },
    /ethtool\.privateFlags: must have at most 64 names/,
  ],
  [{ ethtool: { rings: { rx: 0 } } }, /ethtool\.rings\.rx: /],
  [{ ethtool: { channels: { other: 1 } } }, /ethtool\.channels: Unrecognized key: "other"/],
  [{ vrf: { name: 'red%d', table: 100 } }, /vrf\.name: "red%d" is not an interface name, without "%"/],
  [{ vrf: { name: 'red' } }, /vrf\.table: /],
  [{ vrf: { name: 'red', table: 254 } }, /vrf\.table: must be none of 253 to 255, the tables of the kernel/],
  [{ vrf: { name: 'red', table: 0 } }, /vrf\.table: /],
  [{ bond: {} }, /bond\.name: /],
  [{ bond: { name: 'bond%d' } }, /bond\.name: "bond%d" is not an interface name, without "%"/],
  [{ bond: { name: 'all' } }, /bond\.name: /],
  [{ bond: { name: 'bond0', mode: 'balance-xyz' } }, /bond\.mode: .*"active-backup"/],
  [{ bond: { name: 'bond0', miimon: 0 } }, /bond\.miimon: .*10/],
  [{ bond: { name: 'bond0', lacpRate: 'fast' } }, /bond\.lacpRate: is for mode 802\.3ad only/],
  [{ bond: { name: 'bond0', xmitHashPolicy: 'layer2' } }, /bond\.xmitHashPolicy: is for mode balance-xor, 802\.3ad, b/],
  [
    { bond: { name: 'bond0', mode: '802.3ad', primary: 'left' } },
    /bond\.primary: is for mode active-backup, balance-tlb/,
  ],
  [{ bond: { name: 'bond0', primary: 'left/first' } }, /bond\.primary: must be the name of a request/],
  [{ bond: { name: 'bond0', primary: 'left' } }, /bond\.primary: left is no request of the claim, which has vf/],
  [{ bond: { name: 'bond0', primaryReselect: 'failure' } }, /bond\.primaryReselect: needs primary/],
  [{ bond: { name: 'bond0', arpInterval: 100 } }, /bond\.arpInterval: must be set together with arpTargets/],
  [
    { bond: { name: 'bond0', miimon: 100, arpInterval: 100, arpTargets: ['192.0.2.1'] } },
    /bond\.arpInterval: cannot be combined with miimon/,
  ],
  [
    { bond: { name: 'bond0', arpInterval: 100, arpTargets: ['2001:db8::1'] } },
    /bond\.arpTargets\.0: an IPv4 address of a host/,
  ],
  [
    { bond: { name: 'bond0', arpInterval: 100, arpTargets: ['192.0.2.1', '0.0.0.0'] } },
    /bond\.arpTargets\.1: an IPv4 address of a host/,
  ],
  [
    { bond: { name: 'bond0', arpInterval: 100, arpTargets: ['255.255.255.255'] } },
    /bond\.arpTargets\.0: an IPv4 address of a host/,
  ],
  [
    { routes: [{ destination: '10.0.0.0/8', gateway: '0.0.0.0' }] },
    /routes\.0\.gateway: "0\.0\.0\.0" is not .*of a host/,
  ],
  [
    { routes: [{ destination: '2001:db8::/32', source: 'ff02::1' }] },
    /routes\.0\.source: "ff02::1" is not .*of a host/,
  ],
  [
    { routes: [{ destination: '10.0.0.0/8', nextHops: [{ gateway: '192.0.2.1' }, { gateway: '224.0.0.1' }] }] },
    /routes\.0\.nextHops\.1\.gateway: "224\.0\.0\.1" is not .*of a host/,
  ],
  [{ bond: { name: 'bond0', members: ['a'] } }, /bond: Unrecognized key: "members"/],
  [{ bond: { name: 'bond0', mode: '802.3ad', failOverMac: 'none' } }, /bond\.failOverMac: is for mode active-backup/],
  [{ networkAttachmentDefinition: 'fast' }, /networkAttachmentDefinition: .*object/],
  [
    { networkAttachmentDefinition: { name: 'a/b' } },
    /networkAttachmentDefinition\.name: must be the name of an object/,
  ],
  [{ networkAttachmentDefinition: { namespace: 'a' } }, /networkAttachmentDefinition\.name: /],
  [{ sysctls: { 'net.ipv4.ip_forward': 1 } }, /sysctls\.net\.ipv4\.ip_forward: must be net\.\(ipv4\|ipv6\)/],
  [{ sysctls: { 'net.ipv4.conf.all.forwarding': 1 } }, /sysctls\.net\.ipv4\.conf\.all\.forwarding: must be/],
  [{ sysctls: { 'net.ipv4.conf.eth0.forwarding': 1 } }, /must be .*IFNAME/],
  [{ sysctls: { 'net.ipv4.conf.IFNAME.a/../x': 1 } }, /must be .*IFNAME/],
  [{ sysctls: { 'net.ipv4.conf.IFNAME.forwarding': '1\n1' } }, /IFNAME\.forwarding: must be a number, or a text/],
  [{ sysctls: { 'net.ipv4.conf.IFNAME.forwarding': true } }, /IFNAME\.forwarding: must be a number, or a text/],
])('VFConfig validation rejects %j with the path of the field', (parameters, message) => {
  expect(() => resolve([fromClaim(parameters)], closedFields)).toThrow(message);
});

describe('configForDevice', () => {
  it('gives all devices of a bond the same addresses', () => {
    const config: VfConfig = { bond: { name: 'bond0' }, addresses: ['192.0.2.1/24'] };
    expect(configForDevice(config, 'ns/c', 1, 2)).toEqual(config);
  });

  it('replaces %d in interfaceName with the number of the device', () => {
    expect(configForDevice({ interfaceName: 'net%d' }, 'ns/c', 2, 3)).toEqual({ interfaceName: 'net2' });
  });

  it.each([
    [
      { addresses: ['192.0.2.1/24'] },
      /^addresses: can be set for one device only, but the request of claim ns\/c has 2 devices/,
    ],
    [{ macAddress: '02:00:00:00:00:01' }, /macAddress: /],
    [{ interfaceName: 'net1' }, /interfaceName: /],
  ])('rejects %j for a request of several devices', (config, message) => {
    expect(() => configForDevice(config, 'ns/c', 0, 2)).toThrow(message);
    expect(configForDevice(config, 'ns/c', 0, 1)).toEqual(config);
  });

  it.each(['a234567890123%d', 'ä'.repeat(10), 'net%d%d'])(
    'rejects the name %s if its expansion is not valid',
    (name) => {
      expect(() => configForDevice({ interfaceName: name }, 'ns/c', 100, 200)).toThrow(
        /interfaceName|the request of claim/,
      );
    },
  );
});
