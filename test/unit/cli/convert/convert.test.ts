import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { convertFiles } from '../../../../src/cli/convert/convert.ts';
import { formatRemarks } from '../../../../src/cli/convert/report.ts';
import { validateFiles } from '../../../../src/cli/validate.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';
import { findDocumentProblems } from '../../docs/check-document.ts';
import { plainTerminal } from '../plain-terminal.ts';
import { convertText, options } from './convert-text.ts';

const golden = fileURLToPath(new URL('../../../golden/convert/', import.meta.url));
const estates = readdirSync(golden)
  .filter((name) => name.endsWith('.in.yaml'))
  .map((name) => name.replace('.in.yaml', ''));

const policy = (spec: string) =>
  `apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetworkNodePolicy\nmetadata: { name: p, namespace: sriov }\nspec: ${spec}\n`;

const deviceClass = (expression: string, more = '') =>
  `apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: { name: c }\nspec: { selectors: [{ cel: { expression: '${expression}' } }]${more} }\n`;

const claim = (requests: string, config: string) =>
  `apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: { name: c, namespace: apps }\nspec: { devices: { requests: ${requests}, config: ${config} } }\n`;

describe('netdra convert', () => {
  it('is tested with ten example clusters', () => {
    expect(estates).toHaveLength(10);
  });

  describe.each(estates)('with the example cluster %s', (name) => {
    const input = join(golden, `${name}.in.yaml`);

    it('writes the objects and remarks in the golden files', async () => {
      const { yaml, remarks } = await convertFiles([input], options);
      await expect(yaml).toMatchFileSnapshot(join(golden, `${name}.out.yaml`));
      const text = formatRemarks(plainTerminal, remarks).replaceAll(golden, '');
      await expect(text).toMatchFileSnapshot(join(golden, `${name}.remarks.txt`));
    });

    it("writes objects that netdra validate and the API server's schemas accept", async () => {
      const output = join(golden, `${name}.out.yaml`);
      const { checked, faults } = await validateFiles([output], { driverName: testDriver, openClaimFields: [] });
      expect(faults).toEqual([]);
      expect(checked).toBeGreaterThan(0);
      expect(findDocumentProblems('yaml', readFileSync(output, 'utf8'))).toEqual([]);
    });
  });

  it('names each unknown field', async () => {
    const { isComplete, remarks } = await convertText(policy('{ resourceName: nic, numQueues: 4, nicSelector: {} }'));
    expect(isComplete).toBe(false);
    expect(remarks).toContain('in.yaml:4:28: SriovNetworkNodePolicy sriov/p: spec.numQueues: not converted:');
  });

  it('writes a policy that creates the VFs if --take-over is given, except for externally managed PFs', async () => {
    const own = await convertText(policy('{ resourceName: nic, numVfs: 4, nicSelector: { pfNames: [a] } }'), {
      takeOver: true,
    });
    expect(own.yaml).toContain('numVfs: 4');
    const external = policy('{ resourceName: nic, numVfs: 4, externallyManaged: true, nicSelector: { pfNames: [a] } }');
    expect((await convertText(external, { takeOver: true })).yaml).not.toContain('numVfs');
  });

  it.each(['', 'apiVersion: v1\nkind: List\nitems: []\n', 'apiVersion: v1\nkind: PodList\nitems: null\n', 'a text'])(
    'reports that the input %j has nothing to convert',
    async (text) => {
      const { isComplete, remarks, yaml } = await convertText(text);
      expect([isComplete, yaml]).toEqual([false, '']);
      expect(remarks).toMatch(/^in\.yaml:1:1: .*has no object of another SR-IOV stack/);
    },
  );

  it('prints a note on a file without anything to convert if another file has objects to convert', async () => {
    using dir = tempDir();
    const paths = ['policy.yaml', 'none.yaml'].map((name) => join(dir.path, name));
    writeFileSync(paths[0]!, policy('{ resourceName: nic, nicSelector: { pfNames: [a] } }'));
    writeFileSync(paths[1]!, 'apiVersion: v1\nkind: List\nitems: []\n');
    const { isComplete, remarks } = await convertFiles(paths, options);
    expect(isComplete).toBe(true);
    expect(remarks).toMatchObject([
      { level: 'note', file: paths[1], message: 'has no object of another SR-IOV stack' },
    ]);
  });

  it.each([
    [
      'sriovnetwork.openshift.io/v1',
      'SriovNetworkNodePolcy',
      /SriovNetworkNodePolcy is no kind .* is SriovNetworkNodePolicy meant\?/,
    ],
    ['sriovnetwork.openshift.io/v1', 'SriovFuture', /SriovFuture is no kind that netdra convert knows: leave it out/],
    ['k8s.cni.cncf.io/v1', 'NetworkAttachmentDefintion', /is NetworkAttachmentDefinition meant\?/],
    ['resource.k8s.io/v1', 'ResourceClaimTemplat', /is ResourceClaimTemplate meant\?/],
    ['k8s.cni.cncf.io/v1beta1', 'MultiNetworkPolicy', /^$/],
    ['resource.k8s.io/v1', 'ResourceSlice', /^$/],
    ['v1', 'Pod', /^$/],
  ])(
    'reports an object of %s with the kind %s only if that is probably a mistake',
    async (apiVersion, kind, expected) => {
      const other = `---\napiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: { name: x }\n`;
      const { remarks } = await convertText(policy('{ resourceName: nic, nicSelector: { pfNames: [a] } }') + other);
      expect(remarks).toMatch(expected);
    },
  );

  const second = (spec: string) => `---\n${policy(spec).replace('name: p', 'name: q')}`;
  it.each([
    ['the same PF', 'pfNames: [a]', 'pfNames: [a]'],
    ['some of its PFs', 'pfNames: [a, b]', 'pfNames: [b]'],
    ['some of its VFs', 'pfNames: ["a#0-7"]', 'pfNames: ["a#2-3"]'],
    ['its PFs with a narrower selector', 'vendor: "8086"', 'vendor: "8086", pfNames: [a]'],
  ])('reports that a policy has no effect because an earlier policy has %s', async (_, one, other) => {
    const { isComplete, remarks } = await convertText(
      policy(`{ resourceName: one, numVfs: 16, nicSelector: { ${one} } }`) +
        second(`{ resourceName: two, numVfs: 8, nicSelector: { ${other} } }`),
    );
    expect(isComplete).toBe(false);
    expect(remarks).toMatch(/SriovNetworkNodePolicy sriov\/q: .*SriovNetworkNodePolicy p comes first for the same VFs/);
  });

  it.each([
    ['pfNames: [a]', 'pfNames: [b]'],
    ['pfNames: ["a#0-3"]', 'pfNames: ["a#4-7"]'],
    ['pfNames: ["a#0-3"]', 'pfNames: [a]'],
    ['pfNames: [a]', 'vendor: "8086"'],
  ])('converts two policies if each of them has an effect: %s and %s', async (one, other) => {
    const { isComplete } = await convertText(
      policy(`{ resourceName: one, numVfs: 8, nicSelector: { ${one} } }`) +
        second(`{ resourceName: two, numVfs: 8, nicSelector: { ${other} } }`),
      { takeOver: true },
    );
    expect(isComplete).toBe(true);
  });

  it('prints only a note on a policy without effect whose settings an earlier policy also has', async () => {
    const both = (numVfs: number) =>
      policy('{ resourceName: one, numVfs: 16, nicSelector: { pfNames: [a] } }') +
      second(`{ resourceName: one, numVfs: ${numVfs}, nicSelector: { pfNames: ["a#0-3"] } }`);
    const { isComplete, remarks } = await convertText(both(16), { takeOver: true });
    expect(remarks).toMatch(/sriov\/q: object: note: .*SriovNetworkNodePolicy p comes first .* the same settings/);
    expect(isComplete).toBe(true);
    expect((await convertText(both(8), { takeOver: true })).isComplete).toBe(false);
  });

  it('with --take-over, reports a second policy that sets another number of VFs for the same PF', async () => {
    const both =
      policy('{ resourceName: one, numVfs: 16, nicSelector: { pfNames: ["a#0-3"] } }') +
      second('{ resourceName: two, numVfs: 8, nicSelector: { pfNames: ["a#4-7"] } }');
    expect((await convertText(both)).isComplete).toBe(true);
    const { isComplete, remarks } = await convertText(both, { takeOver: true });
    expect(isComplete).toBe(false);
    expect(remarks).toMatch(/sriov\/q: spec\.numVfs: not converted: SriovNetworkNodePolicy p sets 16 for the same PF/);
  });

  it('omits objects that the API server would reject', async () => {
    const { yaml, remarks } = await convertText(policy('{ resourceName: nic, nicSelector: { vendor: INTEL } }'));
    expect(yaml).not.toContain('NetworkDevicePolicy');
    expect(remarks).toContain('would be refused: spec.pfs.0.select.vendor.0: four lower-case hexadecimal digits');
  });

  describe.each([
    [
      'a NetworkAttachmentDefinition',
      (tuning: string) =>
        `apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: { name: n, namespace: apps, annotations: { k8s.v1.cni.cncf.io/resourceName: intel.com/nic } }\nspec: { config: '{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"sriov"},${tuning}]}' }\n`,
    ],
    [
      'a SriovNetwork',
      (tuning: string) =>
        `apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetwork\nmetadata: { name: n, namespace: sriov }\nspec: { resourceName: nic, networkNamespace: apps, metaPlugins: '${tuning}' }\n`,
    ],
  ])('with several tuning plugins in %s', (_, network) => {
    const tuned = async (...plugins: object[]) => {
      const text = plugins.map((each) => JSON.stringify({ type: 'tuning', ...each })).join();
      return await convertText(network(text));
    };

    it('merges the sysctls of all plugins, of which the last plugin wins', async () => {
      const { yaml } = await tuned(
        { sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1', 'net.ipv4.conf.IFNAME.rp_filter': '1' } },
        { sysctl: { 'net.ipv4.conf.IFNAME.rp_filter': '2' } },
      );
      expect(yaml).toMatch(
        /sysctls:\n +net\.ipv4\.conf\.IFNAME\.arp_filter: ['"]1['"]\n +net\.ipv4\.conf\.IFNAME\.rp_filter: ['"]2['"]/,
      );
    });

    it('lets claims set the MAC address if pods could set it', async () => {
      const { yaml, isComplete, remarks } = await tuned(
        { capabilities: { mac: true } },
        { capabilities: { mac: true } },
      );
      expect(yaml).toMatch(/overridable:\n +- macAddress\n(?! +- )/);
      expect([isComplete, remarks]).toEqual([true, expect.stringContaining('in the claim instead of the annotation')]);
    });

    it('lets claims set the MAC address if pods could set it, even if the CNI plugins are kept', async () => {
      const { yaml, isComplete } = await tuned({ capabilities: { mac: true } }, { type: 'sbr' });
      expect(yaml).toMatch(/attach: cni\n(.*\n)*? +overridable:\n +- macAddress\n/);
      expect(isComplete).toBe(true);
    });

    it('reports a capability that it does not know', async () => {
      const { isComplete, remarks } = await tuned({ capabilities: { speed: true } });
      expect([isComplete, remarks]).toEqual([false, expect.stringMatching(/capabilities\.speed: not converted/)]);
    });
  });

  it.each([
    [
      'a NetworkAttachmentDefinition',
      `apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: { name: n, namespace: apps, annotations: { k8s.v1.cni.cncf.io/resourceName: intel.com/nic } }\nspec: { config: '{"cniVersion":"1.0.0","plugins":[{"type":"sriov","capabilities":{"mac":true,"ips":true},"ipam":{"type":"static"}},{"type":"sbr"}]}' }\n`,
    ],
    [
      'a NetworkAttachmentDefinition of host-device',
      `apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: { name: n, namespace: apps, annotations: { k8s.v1.cni.cncf.io/resourceName: intel.com/nic } }\nspec: { config: '{"cniVersion":"1.0.0","type":"host-device","capabilities":{"mac":true,"ips":true}}' }\n`,
    ],
    [
      'a SriovNetwork',
      `apiVersion: sriovnetwork.openshift.io/v1\nkind: SriovNetwork\nmetadata: { name: n, namespace: sriov }\nspec: { resourceName: nic, networkNamespace: apps, capabilities: '{"mac":true,"ips":true}', ipam: '{"type":"static"}', metaPlugins: '{"type":"sbr"}' }\n`,
    ],
  ])('reports addresses that pods could set but claims cannot, for plugins of %s', async (_, text) => {
    const { isComplete, remarks, yaml } = await convertText(text);
    expect(isComplete).toBe(false);
    expect(remarks).toMatch(/capabilities\.ips: not converted: claims give plugins no addresses/);
    expect(remarks).toMatch(/capabilities: note: pods set the MAC in the claim instead of the annotation/);
    expect(yaml).toMatch(/overridable:\n +- macAddress\n(?! +- )/);
    const isOfOperator = text.includes('SriovNetwork');
    expect(/definition apps\/n, which the operator deletes/.test(remarks)).toBe(isOfOperator);
  });

  it("writes no class that selects other drivers' devices", async () => {
    const { yaml, remarks } = await convertText(deviceClass('device.attributes["dra.net"].alias == "x"'));
    expect(yaml).toBe('');
    expect(remarks).toContain('netdra has no equivalent of the attribute alias');
  });

  const dranetConfig = `{ opaque: { driver: dra.net, parameters: { interface: { name: eth1 } } } }`;
  it.each([
    ['a configuration names the driver', `{ deviceClassName: nics }`, `[${dranetConfig}]`],
    [
      'a selector names the driver',
      `{ deviceClassName: nics, selectors: [{ cel: { expression: 'device.driver == "dra.net"' } }] }`,
      '[]',
    ],
  ])('reports a claim whose class is missing in the input when %s', async (_, exactly, config) => {
    const { yaml, isComplete, remarks } = await convertText(claim(`[{ name: nic, exactly: ${exactly} }]`, config));
    expect({ yaml, isComplete }).toEqual({ yaml: '', isComplete: false });
    expect(remarks).toContain('ResourceClaim apps/c: spec.devices.');
    expect(remarks).toMatch(/nics\b.* dra\.net.*: add the DeviceClass to the input/);
  });

  it('reports a request with a missing class even if another request of the claim can be converted', async () => {
    const own = 'deviceClassName: sriovnetwork.k8snetworkplumbingwg.io';
    const requests = `[{ name: vf, exactly: { ${own} } }, { name: nic, exactly: { deviceClassName: nics } }]`;
    const config = `[{ requests: [nic], ${dranetConfig.slice(1)}]`;
    const { yaml, remarks } = await convertText(claim(requests, config));
    expect(yaml).not.toContain('kind: ResourceClaim');
    expect(remarks).toContain('spec.devices.config.0.opaque: not converted: ');
  });

  it('reports a claim whose class could not be converted', async () => {
    const text = `${deviceClass('device.attributes["dra.net"].alias == "x"')}---\n${claim('[{ name: nic, exactly: { deviceClassName: c } }]', `[${dranetConfig}]`)}`;
    const { remarks } = await convertText(text);
    expect(remarks.split('\n').filter((each) => each.includes('ResourceClaim apps/c'))).toEqual([
      expect.stringContaining('its DeviceClass c is not converted: correct the class first'),
    ]);
  });

  it.each([
    [
      'of v1beta1',
      '{ name: vf, deviceClassName: sriovnetwork.k8snetworkplumbingwg.io }',
      'convert the object to v1 first',
    ],
    ['of v1beta1 whose class is missing', '{ name: vf, deviceClassName: nics }', 'no DeviceClass nics of dra.net'],
    ['with an empty alternative', '{ name: vf, firstAvailable: [null] }', 'no DeviceClass of dra.net'],
  ])('reports a request %s', async (_, request, reason) => {
    const { isComplete, remarks } = await convertText(claim(`[${request}]`, `[${dranetConfig}]`));
    expect(isComplete).toBe(false);
    expect(remarks).toContain(reason);
  });

  it.each([
    ['a driver name that contains it', 'device.driver == "gpu.dra.net"', ''],
    ['a resource name that contains it', 'device.driver == "gpu.example.com"', ', extendedResourceName: dra.net/gpu'],
    [
      'an expression that only mentions the name',
      'device.driver == "gpu.example.com" && device.attributes["x.dra.net"].a',
      '',
    ],
  ])('recognizes a class of DRANET only by its driver name, not by %s', async (_, expression, more) => {
    const { yaml, remarks } = await convertText(deviceClass(expression, more));
    expect(yaml).toBe('');
    expect(remarks).not.toContain('DeviceClass');
  });

  it('converts a class whose CEL expressions name the driver of another SR-IOV stack', async () => {
    const own = { driverName: 'sriov.dra.net' };
    const text = deviceClass('device.driver == "dra.net" && device.attributes["dra.net"].mac != "x.dra.net"');
    const { yaml, isComplete } = await convertText(text, own);
    expect(isComplete).toBe(true);
    expect(yaml).toContain('device.driver == "sriov.dra.net" && device.attributes["sriov.dra.net"].mac != "x.dra.net"');
  });

  it('recognizes a DRANET class by the driver of its configuration', async () => {
    const { yaml } = await convertText(deviceClass('true', `, config: [${dranetConfig}]`));
    expect(yaml).toContain('interfaceName: eth1');
  });

  it("leaves claims for other drivers' devices unchanged", async () => {
    const config = '[{ opaque: { driver: gpu.example.com, parameters: { sharing: none } } }]';
    const gpu = claim('[{ name: gpu, exactly: { deviceClassName: gpu.example.com } }]', config);
    const { remarks } = await convertText(`${policy('{ resourceName: nic, nicSelector: {} }')}---\n${gpu}`);
    expect(remarks).not.toContain('ResourceClaim');
  });

  const attributesOf = (name: string) =>
    `---\nkind: DeviceAttributes\nmetadata: { name: ${name}, labels: { pool: fast } }\nspec: { attributes: { k8s.cni.cncf.io/resourceName: { string: example.com/${name} } } }\n`;
  const resourcePolicy = (config: string) =>
    `kind: SriovResourcePolicy\nmetadata: { name: p }\nspec: { configs: [${config}] }\n`;
  it.each([
    ['none', '', 'no DeviceAttributes of the input has the labels pool=fast'],
    ['two', attributesOf('a') + attributesOf('b'), 'DeviceAttributes a, b have the labels pool=fast'],
  ])('reports a selector of DeviceAttributes that matches %s', async (_, attributes, reason) => {
    const config =
      '{ deviceAttributesSelector: { matchLabels: { pool: fast } }, resourceFilters: [{ vendors: ["8086"] }] }';
    const { yaml, remarks } = await convertText(resourcePolicy(config) + attributes);
    expect(yaml).not.toContain('resourceName');
    expect(remarks).toContain(`spec.configs.0.deviceAttributesSelector: not converted: ${reason}`);
  });

  it('reports configs of a SriovResourcePolicy without filters', async () => {
    const { yaml, remarks } = await convertText(resourcePolicy('{ deviceAttributesSelector: {} }'));
    expect(yaml).toBe('');
    expect(remarks).toContain('SriovResourcePolicy p: spec.configs.0.resourceFilters: not converted: ');
  });

  it.each([
    ['', undefined, true],
    ['"drivers": ["iavf"], "pfNames": ["a"]}, {"pfNames": ["b"], ', undefined, true],
    ['"drivers": ["iavf", "vfio-pci"], ', undefined, true],
    ['"drivers": ["iavf", "mlx5_core"], ', 'driver: kernel', false],
    ['"drivers": ["vfio-pci"], ', 'driver: vfio-pci', false],
  ])('translates device plugin selectors with {%s} to driver %s', async (drivers, line, hasNote) => {
    const config = `{"resourceList": [{"resourceName": "nic", "selectors": [{${drivers}"vendors": ["8086"]}]}]}`;
    const text = `{ kind: ConfigMap, metadata: { name: c }, data: { config.json: '${config}' } }`;
    const { yaml, remarks } = await convertText(text);
    expect(remarks).not.toContain('not converted');
    expect(/^ *(driver: (?!sriov).*)$/m.exec(yaml)?.[1]).toBe(line);
    expect(remarks.includes('drivers: note: the class sets no driver')).toBe(hasNote);
  });

  const routeTo = (destination: string) =>
    `${deviceClass('device.driver == "dra.net"')}---\n${claim(
      '[{ name: nic, exactly: { deviceClassName: c } }]',
      `[{ opaque: { driver: dra.net, parameters: { routes: [{ destination: "${destination}", gateway: "${destination.includes(':') ? '2001:db8::1' : '192.0.2.1'}" }] } } }]`,
    )}`;
  it.each([
    ['0.0.0.0/0', 'DeviceClass'],
    ['0.0.0.0/7', 'DeviceClass'],
    ['::/0', 'DeviceClass'],
    ['198.51.100.0/24', 'ResourceClaim'],
  ])('puts a route to %s into a %s, as the limits on routes of claims require', async (destination, kind) => {
    const { yaml } = await convertText(routeTo(destination));
    const withRoute = yaml.split('---\n').filter((each) => each.includes('destination: '));
    expect(withRoute.map((each) => /^kind: (.*)$/m.exec(each)?.[1])).toEqual([kind]);
  });

  const ours = `device.attributes["${testDriver}"]`;
  it.each([
    // The host's configuration moves, and the class selects whole NICs.
    ['A.ifName == "eth1"', 'nic'],
    ['A.ifName.startsWith("gpu") && A.rdma', 'nic'],
    ['!A.isSriovVf', 'nic'],
    ['!(A.isSriovVf)', 'nic'],
    ['!((A.isSriovVf))', 'nic'],
    ['A.isSriovVf == false', 'nic'],
    ['false == A.isSriovVf', 'nic'],
    ['(A.isSriovVf) != true && A.rdma', 'nic'],
    // Nothing of the host moves with a VF.
    ['A.isSriovVf', 'vf'],
    ['A.isSriovVf == true && A.ifName != "eth0"', 'vf'],
    ['!(A.isSriovVf == false)', 'vf'],
    // Perhaps both.
    ['A.ifName != "eth0"', undefined],
    ['!(A.ifName == "eth0")', undefined],
    ['!(A.ifName.startsWith("eth"))', undefined],
    ['!(A.isSriovVf && A.rdma)', undefined],
    ['A.isSriovVf || A.rdma', undefined],
    ['A.mac != "&& !(" && A.rdma', undefined],
  ])('sets keepHostConfig only in converted classes that select whole NICs: %s selects %s', async (text, kind) => {
    const expression = `device.driver == "dra.net" && ${text.replaceAll('A.', 'device.attributes["dra.net"].')}`;
    const { yaml, remarks } = await convertText(deviceClass(expression));
    expect(yaml.includes('keepHostConfig: true')).toBe(kind === 'nic');
    expect(yaml.includes(`- cel:\n        expression: ${ours}.kind == "nic"`)).toBe(kind === 'nic');
    expect(remarks.includes('for whole NICs set keepHostConfig: true in the class')).toBe(kind === undefined);
  });

  it.each([3_000, 100_000])(
    'does not decide whether an expression with %i nested levels selects whole NICs',
    async (levels) => {
      const inner = 'device.attributes["dra.net"].isSriovVf && device.driver == "dra.net"';
      const { yaml, remarks } = await convertText(deviceClass(`${'!('.repeat(levels)}${inner}${')'.repeat(levels)}`));
      expect(yaml).not.toContain('keepHostConfig');
      expect(remarks).toContain('for whole NICs set keepHostConfig: true in the class');
    },
  );

  it('reports a route whose destination is not a network', async () => {
    const { remarks } = await convertText(routeTo('x/0'));
    expect(remarks).toContain(
      'parameters.routes.0.destination: not converted: "x/0" is not an address with prefix length',
    );
  });

  it('copies labels and annotations of classes, claims, templates and the claims of templates', async () => {
    const last = 'kubectl.kubernetes.io/last-applied-configuration';
    const metadata = (name: string) =>
      `labels: { of: ${name} }, annotations: { example.com/of: ${name}, ${last}: old }`;
    const devices = 'devices: { requests: [{ name: nic, exactly: { deviceClassName: c } }] }';
    const { yaml, remarks } = await convertText(
      [
        deviceClass('device.driver == "dra.net"').replace('name: c', `name: c, ${metadata('class')}`),
        `kind: ResourceClaim\nmetadata: { name: a, ${metadata('claim')} }\nspec: { ${devices} }\n`,
        `kind: ResourceClaimTemplate\nmetadata: { name: t, ${metadata('template')} }\nspec: { metadata: { ${metadata('inner')}, finalizers: [x] }, spec: { ${devices} } }\n`,
      ].join('---\n'),
    );
    expect(
      [...yaml.matchAll(/labels:\s+of: (\w+)\s+annotations:\s+example.com\/of: (\w+)\n/g)].map(String),
    ).toHaveLength(4);
    for (const name of ['class', 'claim', 'template', 'inner']) expect(yaml).toContain(`example.com/of: ${name}`);
    expect(yaml).not.toContain(last);
    expect(remarks).toContain('ResourceClaimTemplate t: spec.metadata.finalizers: not converted: ');
  });

  const resourceList = '{"resourceList": [{"resourceName": "nic", "selectors": {"vendors": ["8086"]}}]}';
  it.each([
    [
      'SriovNetworkNodeState worker-0: spec.interfaces',
      'kind: SriovNetworkNodeState\nmetadata: { name: worker-0 }\nspec: { interfaces: [{ pciAddress: "0000:3b:00.0", vfGroups: [{ resourceName: nic }] }] }\n',
    ],
    ['ConfigMap c: data.worker-0', `{ kind: ConfigMap, metadata: { name: c }, data: { worker-0: '${resourceList}' } }`],
  ])('warns at %s that the hostname label can differ from the node name', async (place, text) => {
    const { yaml, remarks } = await convertText(text);
    expect(yaml).toContain('key: kubernetes.io/hostname');
    expect(remarks).toContain(`${place}: note: the policy selects nodes by kubernetes.io/hostname`);
  });

  it('reports input that contains no object of another SR-IOV stack', async () => {
    const { isComplete, remarks } = await convertText('{ apiVersion: v1, kind: Service, metadata: { name: s } }');
    expect(isComplete).toBe(false);
    expect(remarks).toContain('has no object of another SR-IOV stack');
  });

  it.each([
    ['aliases that stand for billions of values', bomb(), 'values when its aliases are expanded'],
    [
      'JSON that is nested too deeply',
      policy(`{ resourceName: nic, nicSelector: ${'['.repeat(80)}${']'.repeat(80)} }`),
      'levels deep',
    ],
    ['text that is not YAML', 'a: [', 'cannot be read'],
  ])('rejects %s', async (_, text, reason) => {
    const { yaml, isComplete, remarks } = await convertText(text);
    expect({ yaml, isComplete }).toEqual({ yaml: '', isComplete: false });
    expect(remarks).toContain(reason);
  });

  it('rejects input above its size limit', async () => {
    const { yaml, remarks } = await convertText(policy('{ resourceName: nic, nicSelector: {} }'), { mostBytes: 100 });
    expect(yaml).toBe('');
    expect(remarks).toContain('the input is too large: convert it in parts');
  });

  it('rejects deeply nested JSON inside a text field', async () => {
    const config = `{"resourceList":${'['.repeat(9_000)}${']'.repeat(9_000)}}`;
    const text = `{ apiVersion: v1, kind: ConfigMap, metadata: { name: c }, data: { config.json: '${config}' } }`;
    expect((await convertText(text)).remarks).toContain('is nested more than 64 levels deep');
  });

  it('escapes control characters in names', async () => {
    const text = policy('{ resourceName: nic }').replace('name: p', String.raw`name: "p\u001b[31m\n---\nkind: Secret"`);
    const { yaml, remarks } = await convertText(text);
    expect(`${yaml}${remarks}`).not.toContain(String.fromCharCode(27));
    expect(yaml).not.toMatch(/^kind: Secret/m);
  });
});

/** Thirty lines that stand for 10^30 values. */
function bomb(): string {
  const lines = Array.from({ length: 30 }, (_, level) => {
    return `a${level}: &a${level} [${Array.from({ length: 10 }, () => (level === 0 ? 'x' : `*a${level - 1}`)).join(', ')}]`;
  });
  return `kind: SriovNetwork\n${lines.join('\n')}\n`;
}
