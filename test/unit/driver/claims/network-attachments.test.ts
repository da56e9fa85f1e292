import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createKubeNetworkAttachmentReader } from '../../../../src/driver/claims/index.ts';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { ApiServer } from '../../../doubles/api-server.ts';
import { openKube } from '../../../doubles/kube.ts';
import { allocated, DriverBench, fromClaim, fromClass } from './driver-bench.ts';

let stack: AsyncDisposableStack;
let api: ApiServer;
let bench: DriverBench;
beforeEach(async () => {
  stack = new AsyncDisposableStack();
  api = stack.use(await ApiServer.start());
  bench = stack.use(new DriverBench(createKubeNetworkAttachmentReader(stack.use(openKube(api)).client)));
});
afterEach(() => stack.disposeAsync());

const network = { cniVersion: '1.0.0', name: 'fast', plugins: [{ type: 'sriov', vlan: 7 }, { type: 'tuning' }] };

function createDefinition(name: string, config: unknown, namespace = 'default') {
  const spec = config === undefined ? {} : { config: typeof config === 'string' ? config : JSON.stringify(config) };
  return api.create({
    apiVersion: 'k8s.cni.cncf.io/v1',
    kind: 'NetworkAttachmentDefinition',
    metadata: { name, namespace },
    spec,
  });
}

const reads = () => api.requests('GET /network-attachment-definitions/');
const byName = (name: string, namespace?: string) => ({
  attach: 'cni',
  networkAttachmentDefinition: { name, ...(namespace === undefined ? {} : { namespace }) },
});
const storedConfig = ({ identity }: AllocatedClaim) => bench.store.claim(identity.uid)?.devices[0]?.config;

async function refused(claim: AllocatedClaim): Promise<string> {
  const result = await bench.prepare(claim);
  if (result === undefined || !('error' in result)) throw new Error('the claim was prepared');
  return explain(result.error);
}

/** A class that leaves the definition to claims. */
const opened = fromClass({ overridable: ['networkAttachmentDefinition'] });
const claimFor = (name: string) => allocated('c', ['dev-1'], { config: [opened, fromClaim(byName(name))] });

describe('attach: cni with a NetworkAttachmentDefinition', () => {
  it('reads the definition once per request, and not again for prepared claims', async () => {
    createDefinition('fast', network);
    const claim = allocated('c', ['dev-1', 'dev-2', 'dev-3'], { config: [opened, fromClaim(byName('fast'))] });
    await bench.prepare(claim);
    api.delete('NetworkAttachmentDefinition', 'fast');
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
    expect(storedConfig(claim)).toMatchObject({ cni: network });
    expect(reads()).toHaveLength(1);
  });

  it('rejects a definition that is nested too deeply', async () => {
    createDefinition('deep', `{"type":"tuning","a":${'['.repeat(2_500)}${']'.repeat(2_500)}}`);
    expect(await refused(claimFor('deep'))).toContain(
      'default/deep, for claim default/c: configuration: must be nested at most 64',
    );
  });

  it('names an unnamed network after its NetworkAttachmentDefinition, and accepts a single plugin', async () => {
    createDefinition('plain', { cniVersion: '0.3.1', type: 'host-device', ipam: { type: 'static' } });
    const claim = claimFor('plain');
    await bench.prepare(claim);
    expect(storedConfig(claim)?.cni).toEqual({
      cniVersion: '0.3.1',
      name: 'plain',
      plugins: [{ type: 'host-device', ipam: { type: 'static' } }],
    });
  });

  it('lets only a DeviceClass refer to a definition in another namespace', async () => {
    createDefinition('fast', network, 'networks');
    createDefinition('fast', { cniVersion: '1.0.0', name: 'own', plugins: [{ type: 'sriov' }] });
    const fromElsewhere = allocated('c', ['dev-1'], { config: [opened, fromClaim(byName('fast', 'networks'))] });
    expect(await refused(fromElsewhere)).toMatch(
      /claim default\/c may not set networkAttachmentDefinition\.namespace \(an administrator can set the field in the DeviceClass/,
    );
    expect(reads()).toEqual([]);
    const classClaim = allocated('d', ['dev-1'], { config: [fromClass(byName('fast', 'networks'))] });
    expect(await bench.prepare(classClaim)).toEqual({ devices: [] });
    expect(storedConfig(classClaim)).toMatchObject({ cni: { name: 'fast' } });
    const own = allocated('e', ['dev-2'], { config: [opened, fromClaim(byName('fast', 'default'))] });
    expect(await bench.prepare(own)).toEqual({ devices: [] });
    expect(storedConfig(own)).toMatchObject({ cni: { name: 'own' } });
  });

  it("ignores the class's namespace if the claim names another definition", async () => {
    createDefinition('secret', network, 'networks');
    const config = [fromClass(byName('fast', 'networks')), opened, fromClaim(byName('secret'))];
    expect(await refused(allocated('c', ['dev-1'], { config }))).toMatch(
      /NetworkAttachmentDefinition default\/secret does not exist/,
    );
  });

  it('fails the claim for a missing definition, and succeeds once it exists', async () => {
    const claim = claimFor('fast');
    expect(await refused(claim)).toMatch(
      /^claim default\/c: NetworkAttachmentDefinition default\/fast does not exist: .*404.*\(create it, or correct the VFConfig\)$/,
    );
    expect(bench.store.claims()).toEqual([]);
    createDefinition('fast', network);
    expect(await bench.prepare(claim)).toEqual({ devices: [] });
  });

  it('names the missing permission to read definitions', async () => {
    createDefinition('fast', network);
    using _fault = api.failNext('/network-attachment-definitions/', 403, { message: 'forbidden: no RBAC rule' });
    expect(await refused(claimFor('fast'))).toMatch(
      /default\/fast may not be read by the driver: .*forbidden: no RBAC rule \(its role lacks the verb get for network-attachment-definitions of k8s\.cni\.cncf\.io\)$/,
    );
  });

  it('reports that the cluster lacks the CustomResourceDefinition', async () => {
    const message = 'the server could not find the requested resource';
    using _fault = api.failNext('/network-attachment-definitions/', 404, { message });
    expect(await refused(claimFor('fast'))).toMatch(
      /default\/fast cannot exist: .*\(the cluster lacks its CustomResourceDefinition, which comes with Multus\)$/,
    );
  });

  it('fails only the claim if the API server does not answer in time', async () => {
    createDefinition('fast', network);
    const hanging = api.hang('/network-attachment-definitions/');
    stack.defer(() => hanging[Symbol.dispose]());
    const abort = new AbortController();
    const claim = claimFor('fast');
    const preparing = bench.driver.prepareResourceClaims([claim, allocated('d', ['dev-2'])], { signal: abort.signal });
    await api.until(() => reads().length === 1);
    abort.abort(new Error('the kubelet will not wait any longer'));
    const results = [...(await preparing).values()];
    expect(results).toMatchObject([{ error: { code: 'network-attachment-unusable' } }, { devices: [] }]);
  });

  it.each([{ config: network }, { config: 7 }, { config: null }, null, 'text'])(
    'fails the claim for the spec %j, even if the CustomResourceDefinition allows it',
    async (spec) => {
      const metadata = { name: 'fast', namespace: 'default' };
      api.create({ apiVersion: 'k8s.cni.cncf.io/v1', kind: 'NetworkAttachmentDefinition', metadata, spec } as never);
      expect(await refused(claimFor('fast'))).toMatch(/default\/fast has no text in spec\.config/);
    },
  );

  it.each([
    [undefined, /default\/fast has no text in spec\.config \(write the network configuration into spec\.config/],
    ['  ', /default\/fast has no text in spec\.config/],
    ['{', /invalid CNI network of NetworkAttachmentDefinition default\/fast, for claim default\/c: .*must be JSON/],
    [{ cniVersion: '1.0.0', plugins: [{ type: '../evil' }] }, /plugins\.0\.type: must be a bare file name/],
    [{ cniVersion: '9.9.9', type: 'sriov' }, /cniVersion: "9\.9\.9" is not known/],
  ])('fails the claim for a definition with %j', async (config, message) => {
    createDefinition('fast', config);
    expect(await refused(claimFor('fast'))).toMatch(message);
    expect(bench.store.claims()).toEqual([]);
  });
});
