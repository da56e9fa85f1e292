import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { validateFiles } from '../../../src/cli/validate.ts';
import { KubeClient } from '../../../src/framework/kube/index.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import { kubeConfigOf } from '../../doubles/kube.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { repo } from '../docs/pages.ts';
import { BrokenNode } from './broken-node.ts';

const driver = 'sriov.netdra.dev';
const example = readFileSync(join(repo, 'examples/multus.yaml'), 'utf8');
const policyOf = (pfs: string) => `---
apiVersion: netdra.dev/v1alpha1
kind: InventoryPolicy
pfs: ${pfs}
`;
const named = policyOf('[{ select: { name: ens1f0 }, resourceName: example.com/fast }]');
const injector = `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: { name: sriov-webhooks }
webhooks: [{ name: nri.k8s.io, clientConfig: { service: { name: network-resources-injector-service } } }]
`;
/** A class for Multus that selects all devices, in place of the selectors of the claim. */
const observing = `---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: { name: netdra-kernel }
spec:
  selectors: [{ cel: { expression: 'device.driver == "${driver}"' } }]
  config: [{ opaque: { driver: ${driver}, parameters: { apiVersion: netdra.dev/v1alpha1, kind: VFConfig, attach: observe } } }]
`;

async function faultsIn(text: string, isStrict = false): Promise<string[]> {
  using dir = tempDir();
  const path = join(dir.path, 'all.yaml');
  writeFileSync(path, text);
  const options = { driverName: driver, openClaimFields: [], strict: isStrict };
  const { faults } = await validateFiles([path], options);
  return faults.map(({ line, field, message }) => `${line}: ${field}: ${message}`);
}

const replaced = (...changes: [string | RegExp, string][]) =>
  changes.reduce((text, [from, to]) => {
    const next = text.replace(from, to);
    if (next === text) throw new Error(`nothing to replace: ${from}`);
    return next;
  }, example);

/** The example's claim without selectors. */
const open = replaced([/ {12}selectors:[\s\S]*?"example.com\/fast"\n/, '']);

describe('netdra validate, with networks of Multus', () => {
  it('accepts the example and its policy', async () => {
    expect(await faultsIn(example + named)).toEqual([]);
  });

  it('reports a claim for Multus that also selects devices without a resource name', async () => {
    const some = policyOf('[{ select: { name: ens1f0 }, resourceName: example.com/fast }, { select: {} }]');
    expect(await faultsIn(open + some)).toEqual([
      expect.stringMatching(
        /^\d+: spec: request vf also selects devices without .*pfs\[1\].*#multus-device-unnamed\)$/,
      ),
    ]);
    expect(await faultsIn(example + some)).toEqual([]);
    expect(await faultsIn(open + named)).toEqual([]);
  });

  it('reports a class for Multus that also selects devices without a resource name', async () => {
    const [network = ''] = example.split('---\n');
    const some = policyOf('[{ select: {} }, { select: {}, resourceName: example.com/fast }]');
    expect(await faultsIn(network + observing + some)).toEqual([
      expect.stringMatching(/^\d+: spec: the class also selects .*pfs\[0\].*#multus-device-unnamed\)$/),
    ]);
    const narrow = observing.replace(
      `"${driver}"'`,
      `"${driver}" && device.attributes["${driver}"].pfName == "ens1f0"'`,
    );
    expect(await faultsIn(network + narrow + some)).toEqual([]);
  });

  const [bare, withName] = [
    '[{ select: { name: ens1f0 } }]',
    '[{ select: { name: ens1f0 }, resourceName: example.com/fast }]',
  ];
  it.each([
    ['vf', withName, bare, undefined],
    ['vf', bare, withName, 'pfs[0]'],
    ['nic', bare, withName, undefined],
    ['nic', withName, bare, 'nics[0]'],
    [undefined, withName, bare, 'nics[0]'],
  ])(
    'requires a resource name only in rules for the selected kind %s: pfs %s, nics %s',
    async (kind, pfs, nics, rule) => {
      const [network = ''] = example.split('---\n');
      const some = `${policyOf(pfs)}nics: ${nics}\n`;
      const selector = kind === undefined ? 'true' : `device.attributes["${driver}"].kind == "${kind}"`;
      const expected = rule === undefined ? [] : [expect.stringContaining(`set resourceName in ${rule} of the policy`)];
      const narrow = observing.replace(`"${driver}"'`, `"${driver}" && ${selector}'`);
      expect(await faultsIn(network + narrow + some)).toEqual(expected);
      const narrowed = open.replace(
        'deviceClassName: netdra-kernel',
        `$&\n            selectors: [{ cel: { expression: '${selector}' } }]`,
      );
      expect(await faultsIn(narrowed + some)).toEqual(expected);
    },
  );

  it('reports a request with an alternative that also selects devices without a resource name', async () => {
    const some = policyOf('[{ select: { name: ens1f0 }, resourceName: example.com/fast }, { select: {} }]');
    const selectors = `selectors: [{ cel: { expression: 'device.attributes["${driver}"].pfName == "ens1f0"' } }]`;
    const alternatives = `firstAvailable: [{ name: a, deviceClassName: c, ${selectors} }, { name: b, deviceClassName: c }]`;
    const changed = open.replace(/exactly:\n +deviceClassName: .*/, alternatives);
    expect(await faultsIn(changed + some)).toEqual([expect.stringContaining('request vf also selects')]);
    expect(await faultsIn(changed.replace(', { name: b, deviceClassName: c }', '') + some)).toEqual([]);
  });

  it('reports a network whose resource name no policy sets', async () => {
    const other = policyOf('[{ select: {}, resourceName: example.com/slow }]');
    // Another policy may be in other files.
    expect(await faultsIn(example + other)).toEqual([]);
    expect(await faultsIn(example + other, true)).toContainEqual(
      expect.stringMatching(
        /^\d+: document: metadata\.annotations\..*: no policy gives .*"example.com\/fast".*#multus-resource-unknown\)$/,
      ),
    );
  });

  it('reports that network-resources-injector is in use', async () => {
    expect(await faultsIn(example + named + injector)).toEqual([
      expect.stringMatching(/^\d+: metadata: network-resources-injector adds .*#multus-injector\)$/),
    ]);
  });

  it('reports a pod that names a ResourceClaim instead of a template', async () => {
    const [network, template = '', pod = ''] = example.split('---\n');
    const claim = template
      .replace('kind: ResourceClaimTemplate', 'kind: ResourceClaim')
      .replace('  spec:\n', '')
      .replaceAll(/^ {4}/gm, '  ');
    const byName = pod.replace('resourceClaimTemplateName', 'resourceClaimName');
    const direct = [network, claim, byName].join('---\n');
    expect(await faultsIn(direct + named)).toEqual([
      expect.stringMatching(/^\d+: spec: Multus does not see claim moved-by-multus.*#multus-claim-by-name\)$/),
    ]);
  });

  it.each(['fast, default/fast@net2', '[{"name": "fast"}, {"name": "fast", "namespace": "default"}]'])(
    'reports a pod with more networks of a resource name than devices: %s',
    async (networks) => {
      const two = replaced(['networks: fast\n', `networks: '${networks}'\n`]);
      expect(await faultsIn(two + named)).toEqual([
        expect.stringMatching(
          /^\d+: spec: the pod has 2 networks of example.com\/fast, and .* 1 such .*#multus-too-few-devices\)$/,
        ),
      ]);
      expect(await faultsIn(two.replace('deviceClassName: netdra-kernel', '$&\n            count: 2') + named)).toEqual(
        [],
      );
    },
  );

  it('also finds the pods of a CronJob', async () => {
    const [network, template, pod = ''] = replaced(['networks: fast\n', 'networks: fast,fast\n']).split('---\n');
    const indented = pod.replace('apiVersion: v1\nkind: Pod\n', '').replaceAll(/^/gm, '        ');
    const job = `apiVersion: batch/v1\nkind: CronJob\nmetadata: { name: j }\nspec:\n  jobTemplate:\n    spec:\n      template:\n${indented}\n`;
    expect(await faultsIn([network, template, job].join('---\n') + named)).toEqual([
      expect.stringContaining('2 networks of example.com/fast'),
    ]);
  });

  it('does not report networks of a device plugin', async () => {
    const cni = replaced(['attach: observe', 'attach: netlink']);
    expect(await faultsIn(cni + policyOf('[{ select: {} }]') + injector)).toEqual([]);
  });

  it.each(['"["', '5', "'[null, 5]'", "',,'"])(
    'ignores an annotation of networks that Multus cannot read: %s',
    async (text) => {
      expect(await faultsIn(replaced(['networks: fast\n', `networks: ${text}\n`]) + named)).toEqual([]);
    },
  );
});

describe('netdra doctor, with networks of Multus', () => {
  const networkOf = (name: string, resourceName?: string) => ({
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: {
      name,
      namespace: 'apps',
      ...(resourceName && { annotations: { 'k8s.v1.cni.cncf.io/resourceName': resourceName } }),
    },
    spec: { config: '{}' },
  });
  const sliceOf = (...resourceNames: (string | undefined)[]) => ({
    apiVersion: 'resource.k8s.io/v1',
    kind: 'ResourceSlice',
    metadata: { name: 's' },
    spec: {
      driver,
      nodeName: 'worker-1',
      pool: { name: 'worker-1', generation: 1, resourceSliceCount: 1 },
      devices: resourceNames.map((string, index) => ({
        name: `d${index}`,
        attributes: string === undefined ? {} : { 'k8s.cni.cncf.io/resourceName': { string } },
      })),
    },
  });
  const classOf = (expression: string) => ({
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name: 'observed' },
    spec: {
      selectors: [{ cel: { expression } }],
      config: [{ opaque: { driver, parameters: { kind: 'VFConfig', attach: 'observe' } } }],
    },
  });
  const webhook = {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'MutatingWebhookConfiguration',
    metadata: { name: 'network-resources-injector-config' },
    webhooks: [],
  };
  const podOf = (name: string, limits: object) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'apps', annotations: { 'k8s.v1.cni.cncf.io/networks': 'fast' } },
    spec: { resourceClaims: [{ name: 'nic' }], containers: [{ resources: { limits } }] },
  });

  async function findings(objects: object[], prepare: (api: ApiServer) => void = () => {}) {
    await using api = await ApiServer.start();
    for (const object of objects) api.create(object as never);
    prepare(api);
    const config = kubeConfigOf(api);
    const openKube = async () => new KubeClient(config, { clock: systemClock, userAgent: 'netdra/test' });
    using node = new BrokenNode({ options: { openKube } });
    return (await node.diagnose()).filter((text) => text.includes(' Multus: '));
  }

  const fast = networkOf('fast', 'example.com/fast');

  it('finds no problem where Multus is not used', async () => {
    expect(await findings([])).toEqual([]);
    expect(await findings([networkOf('bridge'), sliceOf(undefined), webhook])).toEqual([]);
  });

  it('accepts networks whose devices the driver offers', async () => {
    expect(await findings([fast, sliceOf('example.com/fast')])).toEqual([
      `ok Multus: 1 networks get devices of ${driver}`,
    ]);
  });

  it('names a class for Multus that also selects a device without a resource name', async () => {
    const objects = [fast, sliceOf('example.com/fast', undefined)];
    expect(await findings([...objects, classOf(`device.driver == "${driver}"`)])).toEqual([
      'warning Multus: DeviceClass observed, whose devices Multus attaches, also selects worker-1/d1, which has no k8s.cni.cncf.io/resourceName',
    ]);
    const narrow = classOf('device.attributes["k8s.cni.cncf.io"].resourceName == "example.com/fast"');
    expect(await findings([...objects, narrow])).toEqual([expect.stringMatching(/^ok /)]);
  });

  const ofKind = (slice: ReturnType<typeof sliceOf>, kind: string) => {
    for (const { attributes } of slice.spec.devices) Object.assign(attributes, { kind: { string: kind } });
    return { ...slice, metadata: { name: `s-${kind}` } };
  };

  it('compares a class only with devices of the kind that it selects', async () => {
    const nics = ofKind(sliceOf(undefined), 'nic');
    const vfs = classOf(`device.driver == "${driver}" && device.attributes["${driver}"].kind == "vf"`);
    const named = ofKind(sliceOf('example.com/fast'), 'vf');
    expect(await findings([fast, named, nics, vfs])).toEqual([expect.stringMatching(/^ok /)]);
    const unnamed = ofKind(sliceOf('example.com/fast', undefined), 'vf');
    expect(await findings([fast, unnamed, nics, vfs])).toEqual([
      expect.stringContaining('also selects worker-1/d1, which has no'),
    ]);
  });

  it('checks the selectors of templates together with the class that they use', async () => {
    const templateOf = (name: string, expression: string) => ({
      apiVersion: 'resource.k8s.io/v1',
      kind: 'ResourceClaimTemplate',
      metadata: { name, namespace: 'apps' },
      spec: {
        spec: {
          devices: {
            requests: [
              { name: 'vf', exactly: { deviceClassName: 'observed', selectors: [{ cel: { expression } }] } },
              { name: 'gpu', exactly: { deviceClassName: 'gpu' } },
            ],
          },
        },
      },
    });
    const observed = classOf(`device.driver == "${driver}"`);
    const objects = [fast, sliceOf('example.com/fast', undefined)];
    const narrow = templateOf('narrow', 'device.attributes["k8s.cni.cncf.io"].resourceName == "example.com/fast"');
    expect(await findings([...objects, observed, narrow])).toEqual([expect.stringMatching(/^ok /)]);
    expect(await findings([...objects, observed, narrow, templateOf('wide', 'true')])).toEqual([
      'warning Multus: request vf of ResourceClaimTemplate apps/wide, whose devices Multus attaches, also selects worker-1/d1, which has no k8s.cni.cncf.io/resourceName',
    ]);
    // Claims of extended resources have no selectors of their own.
    const extended = { ...observed, spec: { ...observed.spec, extendedResourceName: 'example.com/vf' } };
    expect(await findings([...objects, extended, narrow])).toEqual([
      expect.stringContaining('DeviceClass observed, whose devices Multus attaches, also selects worker-1/d1'),
    ]);
  });

  it('names a network whose resource name no device and no device plugin has', async () => {
    const nodeWith = (resource: string) => ({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: 'worker-2' },
      status: { allocatable: { cpu: '1', [resource]: '4' } },
    });
    expect(await findings([fast, sliceOf('example.com/slow')])).toEqual([
      'warning Multus: no device has the resource name example.com/fast of network apps/fast',
    ]);
    expect(await findings([fast, sliceOf('example.com/slow'), nodeWith('example.com/fast')])).toEqual([
      expect.stringMatching(/^ok /),
    ]);
  });

  it('names network-resources-injector if it is in use', async () => {
    expect(await findings([fast, sliceOf('example.com/fast'), webhook])).toEqual([
      "warning Multus: MutatingWebhookConfiguration network-resources-injector-config adds a network's device to the limits of pods whose claim already has it",
    ]);
  });

  it('names pods whose limits network-resources-injector changed before it was removed', async () => {
    const pods = [podOf('a', { 'example.com/fast': '1' }), podOf('b', { cpu: '1' })];
    expect(await findings([fast, sliceOf('example.com/fast'), ...pods])).toEqual([
      "warning Multus: a network's device is requested twice, in a claim and in limits, by pod apps/a",
    ]);
  });

  it('reports a missing permission to read networks only if claims are left to Multus', async () => {
    const deny = (api: ApiServer) =>
      void api.failNext('GET /apis/k8s.cni.cncf.io/v1/network-attachment-definitions', 403, { times: 9 });
    expect(await findings([fast], deny)).toEqual([]);
    expect(await findings([fast, classOf('true')], deny)).toEqual([
      expect.stringMatching(/^warning Multus: cannot be checked: .*403/),
    ]);
  });
});
