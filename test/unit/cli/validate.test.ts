import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { repository as repo } from '../../../scripts/run-command.ts';
import { validateFiles } from '../../../src/cli/validate.ts';
import { formatValidation } from '../../../src/cli/validate-reports.ts';
import { testDriver } from '../../doubles/objects.ts';
import { plainTerminal } from './plain-terminal.ts';
import { claim, config, deviceClass, linesFor, options } from './validated.ts';

const policy = (rest: string) => `apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n${rest}`;

const policyObject = (nodeSelector: string, rest = 'pfs: []') =>
  `apiVersion: netdra.dev/v1alpha1\nkind: NetworkDevicePolicy\nmetadata: { name: p }\nspec:\n  nodeSelector: ${nodeSelector}\n  ${rest}\n`;

/** Thirty lines that stand for 10^30 values. */
const laughs = Array.from({ length: 30 }, (_, level) => {
  return `l${level}: &l${level} [${Array(10)
    .fill(level === 0 ? 'ha' : `*l${level - 1}`)
    .join()}]`;
});
const bomb = `${laughs.join('\n')}${claim('c', 'ipam: { type: static, laughs: *l29 }')}`;
const configMap = (text: string) =>
  `apiVersion: v1\nkind: ConfigMap\ndata:\n  policy.yaml: |\n${text.replaceAll(/^/gm, '    ')}\n`;

describe('validateFiles', () => {
  it.each([
    ['flow lists', `a: ${'['.repeat(5_000)}${']'.repeat(5_000)}`],
    ['lists of objects', `${'{ items: ['.repeat(100)}${']}'.repeat(100)}`],
    ['an anchor that contains itself', 'kind: &k [*k]'],
    ['aliases that multiply values', bomb],
    ['aliases that multiply values in a ConfigMap', configMap(policy(`${laughs.join('\n')}\npfs: *l29`))],
  ])('rejects a document that is nested too deeply, or too large: %s', async (_what, text) => {
    expect((await linesFor([text]))[0]).toMatch(/^0:\d+:\d+: (document|data): /);
  });

  it('finds no problem in the files of this repository', async () => {
    const examples = readdirSync(join(repo, 'examples'), { recursive: true, encoding: 'utf8' });
    const files = [
      'deploy/manifests/netdra.yaml',
      'deploy/helm/netdra/values.yaml',
      ...examples.filter((name) => name.endsWith('.yaml')).map((name) => `examples/${name}`),
    ];
    const { checked, faults, notes } = await validateFiles(
      files.map((path) => join(repo, path)),
      options,
    );
    expect(faults).toEqual([]);
    expect(notes.filter((note) => note.includes('same addresses'))).toEqual([]);
    expect(checked).toBeGreaterThan(8);
  });

  it.each([
    ['a policy', policy('pfs:\n  - select: { vendor: intel }\n'), /^0:4:15: pfs\.0\.select\.vendor: four lower-case/],
    ['a policy without kind', 'pfs: []\n', /^0:1:1: apiVersion: "netdra\.dev\/v1alpha1" is needed$/m],
    ['a policy in values of the chart', 'image: {}\ninventoryPolicy:\n  nics: 3\n', /^0:3:3: nics: a list is needed/],
    [
      'a later document of the file',
      `${policy('')}\n---\n---\n${policy('colour: red')}`,
      /^0:8:1: document: there is no field "col/,
    ],
    ['a class', deviceClass('c', 'limits: { maxRoutes: -1 }'), /^0:7:\d+: limits\.maxRoutes: must be at least 0$/m],
    ['an item of a list', `kind: List\nitems:\n- ${policy('pfs: 1').replaceAll('\n', '\n  ')}`, /^0:5:3: pfs: a list/],
    [
      'a policy object',
      policyObject('{}', 'pfs: [{ select: { vendor: "8086" } }]'),
      /^0:6:21: spec\.pfs\.0\.select\.vendor: a list is/m,
    ],
    [
      'the selector of a policy object',
      policyObject('{ matchLabel: {} }'),
      /^0:5:19: spec\.nodeSelector: there is no field "matchLabel"/m,
    ],
    [
      'an operator in the selector of a policy object',
      policyObject('{ matchExpressions: [{ key: a, operator: In }] }'),
      /^0:5:3: .*: values are needed with In/m,
    ],
    [
      'an address pool',
      'apiVersion: netdra.dev/v1alpha1\nkind: NetworkAddressPool\nmetadata: { name: p }\nspec: { ranges: [{ network: 192.0.2.0/24, last: 192.0.3.1 }] }\n',
      /^0:4:\d+: spec\.ranges\.0\.last: must be an address of the network/m,
    ],
    ['a claim', claim('c', 'mtu: big'), /^0:18:13: mtu: a whole number is needed$/m],
    [
      'a claim with a field that only classes have',
      claim('c', 'limits: {}'),
      /^0:18:13: parameters: there is no field "limits" here; docs\/vf/,
    ],
    [
      'a value given as a YAML alias',
      'x: &x 1\npfs: [*x]\nkind: InventoryPolicy\n',
      /^0:2:7: pfs\.0: a map of fields is needed$/m,
    ],
    [
      'an object with a wrong kind',
      'apiVersion: resource.k8s.io/v1\nkind: DeviceClas\n',
      /^0:2:1: kind: "DeviceClas" is not a kind of this API/,
    ],
    [
      'a netdra object with a wrong kind',
      'apiVersion: netdra.dev/v1alpha1\nkind: Policy\n',
      /^0:2:1: kind: "Policy" is not a kind of this/,
    ],
    [
      'a template without a claim',
      'apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nspec: { devices: {} }\n',
      /^0:3:1: spec\.spec: is missing/,
    ],
    [
      'the policy in a ConfigMap of the chart',
      `kind: ConfigMap\ndata:\n  p.yaml: |\n    ${policy('pfs: 3').replaceAll('\n', '\n    ')}`,
      /^0:3:3: pfs: a list is needed/,
    ],
    [
      'a policy in a ConfigMap whose comments and lists mention other kinds',
      configMap(`# netdra, kind: rack 7\n${policy('pfs: [{ kind: x }]\nnics: 3')}`),
      /^0:4:3: pfs\.0[\s\S]*\n0:4:3: nics: a list is needed/,
    ],
    [
      'a policy in a ConfigMap that is not YAML',
      configMap('{"kind": "InventoryPolicy", "pfs": [}'),
      /^0:4:3: data: is not valid YAML: /,
    ],
    [
      'a policy in a ConfigMap that is nested too deeply for the parser',
      configMap(`kind: InventoryPolicy\npfs: ${'['.repeat(200_000)}`),
      /^0:4:3: data: is not valid YAML: nesting exceeded/,
    ],
    [
      'a policy in a ConfigMap that is JSON',
      configMap('{"apiVersion": "netdra.dev/v1alpha1", "kind": "InventoryPolicy",\n "pfs": 3}'),
      /^0:4:3: pfs: a list is needed/,
    ],
    [
      'a policy in a ConfigMap that is JSON in several lines',
      configMap('{\n  "kind": "InventoryPolicy",\n  "apiVersion": "netdra.dev/v1alpha1",\n  "pfs": 3\n}'),
      /^0:4:3: pfs: a list is needed/,
    ],
    [
      'a configuration for a request that the claim does not have',
      claim('c', 'mtu: 1500').replace('requests: [vf]', 'requests: [vff]'),
      /^0:12:\d+: config\.0\.requests\.0: "vff" is the name of no request of the claim/,
    ],
    [
      'a constraint for an alternative that the claim does not have',
      `${claim('c', 'mtu: 1500', 'firstAvailable: [{ name: a, deviceClassName: c }]')}    constraints: [{ requests: [cpu, vf, vf/a, vf/b], matchAttribute: x/y }]\n`,
      /constraints\.0\.requests\.3: "vf\/b" is the name of no request of the claim[\s\S]*\n1 objects checked, 1 faults/,
    ],
    [
      'a class in values of the chart',
      'deviceClasses:\n  more:\n    - name: a\n      vfConfig: { vf: { vlann: 3 } }\n',
      /^0:4:\d+: vf: there is no field "vlann" here/,
    ],
    [
      'a class in values of the chart that contradicts itself',
      'deviceClasses:\n  more:\n    - { name: a, vfConfig: { attach: cni } }\n',
      /^0:3:\d+: vfConfig: attach: "cni" needs/,
    ],
    [
      'an extra class in the values of the chart',
      'deviceClasses:\n  dpdk: { vf: { trust: "on" } }\n',
      /^0:2:\d+: vf\.trust: /,
    ],
    ['a class without its CNI network', deviceClass('c', 'attach: cni'), /^0:7:\d+: parameters: attach: "cni" needs/],
    [
      'a class with sysctls for DPDK',
      deviceClass('c', 'driver: vfio-pci, sysctls: { net.ipv4.conf.IFNAME.arp_ignore: 1 }'),
      /sysctls: needs an interface/,
    ],
    [
      'a class with a bond for DPDK',
      deviceClass('c', 'driver: vfio-pci, bond: { name: b0 }'),
      /bond: b0 cannot be combined with driver/,
    ],
    [
      'a class with an empty VLAN range',
      deviceClass('c', 'limits: { vlanRanges: ["200-100"] }'),
      /^0:7:\d+: limits\.vlanRanges\.0: "200-100" is not a VLAN id from 0 to 4094, or a range/,
    ],
    ['a class with RDMA for DPDK', deviceClass('c', 'driver: vfio-pci, rdma: true'), /rdma: needs an interface/],
    ['a file that is not YAML', 'kind: Pod\na: [1,\n', /^0:\d:\d+: document: is not valid YAML: /],
  ])('prints the location of a problem in %s', async (_, text, line) => {
    expect((await linesFor([text])).join('\n')).toMatch(line);
  });

  it('compares claims with classes in values of the chart', async () => {
    const values = 'deviceClasses:\n  more:\n    - { name: tenant, vfConfig: { mtu: 9000 } }\n';
    expect(await linesFor([claim('tenant', 'mtu: 1500'), values])).toEqual([
      expect.stringMatching(/request vf: claim apps\/fast-net sets mtu to 1500, but its DeviceClass sets it to 9000/),
      '2 objects checked, 1 faults',
    ]);
  });

  it('compares a claim with its class, whichever file the class is in', async () => {
    const own = deviceClass('tenant', 'mtu: 9000');
    expect(await linesFor([claim('tenant', 'mtu: 1500'), own])).toEqual([
      expect.stringMatching(
        /^0:9:9: request vf: claim apps\/fast-net sets mtu to 1500, but its DeviceClass sets it to 9000 \(leave/,
      ),
      '2 objects checked, 1 faults',
    ]);
    const alternatives = 'firstAvailable: [{ name: a, deviceClassName: b }, { name: c, deviceClassName: tenant }]';
    expect((await linesFor([own, deviceClass('b', ''), claim('', 'mtu: 1500', alternatives)]))[0]).toMatch(
      /^2:10:\d+: request vf\/c/,
    );
    const old = 'deviceClassName: tenant';
    expect((await linesFor([claim('', 'mtu: 1500', old).replace('/v1\n', '/v1beta1\n'), own]))[0]).toMatch(
      /^0:9:9: request vf: /,
    );
    const watching = 'exactly: { deviceClassName: tenant, adminAccess: true }';
    expect(await linesFor([claim('', 'mtu: 1500', watching), own])).toEqual(['2 objects checked, 0 faults']);
    // What a claim alone lacks, its class may have.
    const bare = deviceClass('tenant', 'attach: cni');
    const network = 'cni: { cniVersion: 1.0.0, name: n, type: macvlan }';
    expect(await linesFor([bare, claim('tenant', network)])).toEqual([
      expect.stringMatching(/^0:7:\d+: parameters: attach: "cni" needs either cni/),
      expect.stringMatching(/may not set cni/),
      '2 objects checked, 2 faults',
    ]);
    const opened = deviceClass('tenant', 'attach: cni, overridable: [cni]');
    expect(await linesFor([opened, claim('tenant', network)])).toEqual(['2 objects checked, 0 faults']);
    expect(await linesFor([bare, claim('tenant', network)], { openClaimFields: ['cni'] })).toEqual([
      '2 objects checked, 0 faults',
    ]);
  });

  describe('for claims', () => {
    const classes = [
      deviceClass('c', 'limits: { maxDevices: 1, allowedNamespaces: { names: [vendor-a] } }'),
      deviceClass('d', 'mtu: 1500'),
    ];
    const requests = (requests: string, fields: string, namespace = 'vendor-a') => `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: { name: net${namespace && `, namespace: ${namespace}`} }
spec: { devices: { requests: [${requests}], config: [${fields && config(fields)}] } }
`;
    const one = (name: string, rest = '', className = 'd') =>
      `{ name: ${name}, exactly: { deviceClassName: ${className}${rest} } }`;
    const either = (name: string, ...classNames: string[]) => {
      const alternatives = classNames.map((className, at) => `{ name: ${'xyz'[at]}, deviceClassName: ${className} }`);
      return `{ name: ${name}, firstAvailable: [${alternatives}] }`;
    };
    const faultsOf = async (text: string, more = {}) => (await linesFor([...classes, text], more)).slice(0, -1);

    it.each([
      ['more devices than its class allows', requests(one('a', ', count: 4', 'c'), 'mtu: 1500'), /maxDevices/],
      [
        'more devices than its class allows, without a VFConfig',
        requests(one('a', ', count: 4', 'c'), ''),
        /maxDevices/,
      ],
      [
        'a namespace that its class does not allow',
        requests(one('a', '', 'c'), '', 'b'),
        /does not allow claims of namespace b/,
      ],
      [
        'one interface name for several devices',
        requests(one('a', ', count: 2'), 'interfaceName: net1'),
        /interfaceName: .* has 2 devices/,
      ],
      [
        'static addresses for several devices',
        requests(one('a', ', count: 2'), 'addresses: [192.0.2.1/24]'),
        /addresses: .* has 2 devices/,
      ],
      [
        'one interface name for two requests',
        requests(`${one('a')}, ${one('b')}`, 'interfaceName: net1'),
        /device b cannot have the name net1, which a has/,
      ],
      [
        'one address key for two requests',
        `${deviceClass('pool', 'addressPool: { name: lan, key: db }')}\n---${requests(`${one('a', '', 'pool')}, ${one('b', '', 'pool')}`, '')}`,
        /requests a and b have the same addressPool.key db/,
      ],
      [
        'one interface name for two requests, whatever their alternatives',
        requests(`${either('a', 'd')}, ${one('b')}`, 'interfaceName: net1'),
        /device b cannot have the name net1, which a\/x has/,
      ],
      [
        'one route for two requests',
        requests(
          `${one('a')}, ${one('b')}`,
          'addresses: [192.0.2.1/24], routes: [{ destination: 198.51.100.0/24, gateway: 192.0.2.9 }]',
        ),
        /device b cannot have a route to/,
      ],
      ['a bond with one device', requests(one('a'), 'bond: { name: bond0 }'), /bond0 has one member/],
    ])('reports %s', async (_, text, expected) => {
      const faults = (await faultsOf(text)).filter((line) => !line.startsWith('note: '));
      expect(faults).toEqual([expect.stringMatching(expected)]);
    });

    it('does not report problems that depend on nodes, namespaces or other files', async () => {
      const labels = 'limits: { allowedNamespaces: { selector: { matchLabels: { a: b } } } }';
      const cpu = '\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: { name: cpu }\nspec: {}\n';
      const texts = [
        requests(one('a', '', 'c'), 'mtu: 1500', ''),
        `${deviceClass('e', labels)}---${requests(one('a', '', 'e'), 'mtu: 1500')}`,
        requests(one('a', ', allocationMode: All', 'c'), 'mtu: 1500'),
        requests(one('a', ', allocationMode: All'), 'bond: { name: bond0 }'),
        requests(one('a', ', count: 2'), 'bond: { name: bond0 }'),
        requests(`${one('a')}, ${one('b')}`, 'bond: { name: bond0 }, addresses: [192.0.2.1/24]'),
        // The class of another driver.
        `${cpu}---${requests(`${one('a')}, ${one('b', '', 'cpu')}`, 'interfaceName: net1')}`,
      ];
      for (const text of texts) expect(await faultsOf(text, { strict: true }), text).toEqual([]);
      const half = requests(`${one('a')}, ${one('b', '', 'missing')}`, 'bond: { name: bond0 }');
      expect(await faultsOf(half)).toEqual([expect.stringMatching(/^note: .* DeviceClass missing/)]);
    });

    it('prints a note, or in strict mode a fault, if only some alternatives of the requests conflict', async () => {
      const more = `${deviceClass('e', 'mtu: 9000')}---`;
      const text = `${more}${requests(`${either('a', 'd', 'e')}, ${either('b', 'd', 'd', 'e')}`, 'bond: { name: bond0 }')}`;
      const message =
        /with some alternatives the driver refuses the claim: .*bond0 has mtu 9000 from request a\/y, and 1500/;
      expect(await faultsOf(text)).toEqual([expect.stringMatching(/^note: /)]);
      expect(await faultsOf(text, { strict: true })).toEqual([expect.stringMatching(message)]);
    });

    it('prints a note, or in strict mode a fault, on one interface name for all devices of a node', async () => {
      const text = requests(one('a', ', allocationMode: All'), 'interfaceName: net1');
      const message = /allocationMode All.* interfaceName: .*put %d into the name/;
      expect(await faultsOf(text)).toEqual([expect.stringMatching(message)]);
      expect(await linesFor([...classes, text], { strict: true })).toEqual([
        expect.stringMatching(message),
        '3 objects checked, 1 faults',
      ]);
    });
  });

  it('prints one note for all claims of the same missing class', async () => {
    expect(await linesFor(Array.from({ length: 1000 }, () => claim('tenant', 'mtu: 1500')))).toEqual([
      'note: 0:9: DeviceClass tenant is in none of the files, or is not valid: the claim was not compared with it (and 999 more)',
      '1000 objects checked, 0 faults',
    ]);
  });

  it('warns about a template that gives each pod the same address', async () => {
    const template = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: { name: t }
spec:
  spec:
    devices:
      config:
        - ${config('addresses: [192.0.2.1/24]')}
`;
    expect((await linesFor([template]))[0]).toBe(
      'note: 0:7: each claim of a template gets the same addresses: use ipam, or a claim for each pod',
    );
  });

  it('reports faults that no class can mend, also if no file has the class', async () => {
    const pair = (fields: string) => claim('tenant', fields, 'exactly: { deviceClassName: tenant, count: 2 }');
    const faults = async (text: string) => (await linesFor([text])).filter((line) => !/^note|checked/.test(line));
    for (const [field, value] of [
      ['interfaceName', 'net1'],
      ['macAddress', '"02:00:00:00:00:01"'],
      ['addressPool', '{ name: a }'],
    ]) {
      expect(await faults(pair(`${field}: ${value}`))).toEqual([
        expect.stringContaining(`request vf: ${field}: can be set for one device only`),
      ]);
    }
    // A class can give it a bond, whose members share addresses.
    expect(await faults(pair('addresses: [192.0.2.1/24]'))).toEqual([]);
    // Without a list of requests, the configuration may be for the other request.
    const ofEither = pair('interfaceName: net1').replace('requests: [vf]\n        ', '');
    expect(ofEither).not.toContain('requests: [');
    expect(await faults(ofEither)).toEqual([]);
  });

  it('reports the parts of a manifest that it did not check', async () => {
    expect(
      await linesFor([
        claim('tenant', 'mtu: 1500'),
        'kind: Pod\n',
        deviceClass('c', '').replace(testDriver, 'a.example'),
      ]),
    ).toEqual([
      `note: 1: contains neither an inventory policy nor a VFConfig for ${testDriver}`,
      `note: 2: contains neither an inventory policy nor a VFConfig for ${testDriver}`,
      `note: 2:7: the VFConfig is for driver "a.example", not ${testDriver} (--driver-name): not checked`,
      'note: 0:9: DeviceClass tenant is in none of the files, or is not valid: the claim was not compared with it',
      '1 objects checked, 0 faults',
    ]);
    expect((await linesFor(['']))[0]).toMatch(/^note: 0: contains neither an inventory policy/);
    expect(formatValidation(plainTerminal, await validateFiles(['/nowhere'], options))).toMatch(
      /^\/nowhere:1:1: document: cannot be read: ENOENT/,
    );
  });
});

describe('validateFiles in strict mode', () => {
  const strict = async (text: string) => (await linesFor([text], { strict: true })).slice(0, -1);

  it.each([
    [
      'a misspelled kind of Kubernetes',
      'apiVersion: v1\nkind: ResourceClam\n',
      /^0:2:1: kind: "ResourceClam": is ResourceClaim meant\?/,
    ],
    [
      'a misspelled group',
      'apiVersion: resource.k8.io/v1\nkind: ResourceClaim\n',
      /^0:1:1: apiVersion: .* is resource\.k8s\.io meant\?/,
    ],
    [
      'a misspelled netdra group',
      'apiVersion: netdra.def/v1alpha1\nkind: NodeNetworkDevices\n',
      /^0:1:1: apiVersion: .* is netdra\.dev meant/,
    ],
    [
      'a kind in the wrong group',
      'apiVersion: v1\nkind: DeviceClass\n',
      /^0:1:1: apiVersion: "v1": is resource\.k8s\.io meant\?/,
    ],
    ['a document without a kind', 'colour: red\n', /^0:1:1: document: is not checked: it has no apiVersion and kind/],
    [
      'a VFConfig for a misspelled driver',
      claim('c', 'mtu: 1500').replace(testDriver, `${testDriver}x`),
      /not checked/,
    ],
    [
      'a claim whose class is missing',
      claim('c', 'mtu: 1500'),
      /^0:\d+:\d+: document: DeviceClass c is in none of the files/,
    ],
    [
      'a misspelled field of a policy in a ConfigMap',
      configMap('apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicie\npfs: []'),
      /^0:4:3: kind: "InventoryPolicie"/,
    ],
    ['a ConfigMap whose policy has no kind', configMap('pfs: []'), /^0:4:3: kind: "" is not a kind/],
    ['a ConfigMap whose policy in JSON has no kind', configMap('{"pfs": []}'), /^0:4:3: kind: "" is not a kind/],
    [
      'a file without netdra objects',
      'apiVersion: v1\nkind: Pod\n',
      /^0:1:1: document: contains neither an inventory policy/,
    ],
  ])('finds %s', async (_, text, expected) => {
    expect((await strict(text)).join('\n')).toMatch(expected);
    // These pass otherwise, with a note at most.
    const notes = (await linesFor([text])).slice(0, -1);
    expect(notes.filter((line) => !line.startsWith('note: '))).toEqual([]);
  });

  it('does not report unrelated objects in a file with objects of netdra', async () => {
    const pod =
      'apiVersion: v1\nkind: Pod\n---\napiVersion: apps/v1\nkind: Deployment\n---\napiVersion: v1\nkind: ConfigMap\ndata: { a: b, c: "kind: [", d: "# kind: InventoryPolicy", e: "[{kind: InventoryPolicy, pfs: 3}]" }\n';
    expect(await strict(`${pod}---${policy('pfs: []')}`.replace('---api', '---\napi'))).toEqual([]);
    expect(await strict(`${deviceClass('c', 'mtu: 9000')}---${claim('c', 'interfaceName: net1')}`)).toEqual([]);
  });
});
