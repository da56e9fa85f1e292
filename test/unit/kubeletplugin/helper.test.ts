import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { KubeConfig } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import {
  createKubeClaimReader,
  type DraPlugin,
  type PreparedDevice,
  type PrepareResult,
  startKubeletPlugin,
} from '../../../src/kubeletplugin/index.ts';
import { ClaimMetadata, layouts } from '../../../src/metadata/index.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import { Kubelet } from '../../doubles/kubelet.ts';
import { DraClient } from '../../doubles/kubelet-dra-client.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { buildClaim, buildPod, generateClaim, testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

type Behaviour = Partial<DraPlugin> & { devices?: PreparedDevice[] };

/** A kubelet, an API server, and the framework between them, with a driver that does as the test says. */
async function startBench(behaviour: Behaviour = {}) {
  const stack = new AsyncDisposableStack();
  const dir = stack.use(tempDir());
  const dataDir = join(dir.path, 'plugins', testDriver);
  const registryDir = join(dir.path, 'registry');
  const cdiDir = join(dir.path, 'cdi');
  mkdirSync(registryDir);
  const api = stack.use(await ApiServer.start());
  const config = new KubeConfig();
  config.loadFromString(api.kubeconfig());
  const logger = new RecordingLogger();
  const plugin: DraPlugin = {
    prepareResourceClaims: async (claims) =>
      new Map(claims.map(({ identity }) => [identity.uid, { devices: behaviour.devices ?? [] } as PrepareResult])),
    unprepareResourceClaims: async (claims) => new Map(claims.map(({ uid }) => [uid, undefined])),
    ...behaviour,
  };
  const metadata = new ClaimMetadata({ driver: testDriver, dataDir, cdiDir, layouts: [layouts.v1] });
  const options = { driver: testDriver, dataDir, registryDir, metadata, clock: systemClock, logger };
  const helper = stack.use(await startKubeletPlugin(plugin, { ...options, claims: createKubeClaimReader(config) }));
  const getClaim = async (namespace: string, name: string) => {
    const claim = api.get('ResourceClaim', name, namespace);
    if (claim === undefined) throw new Error('not found');
    return claim as never;
  };
  const kubelet = stack.use(await Kubelet.start({ registryDir, getClaim }));
  await kubelet.waitForDriver(testDriver);
  return { api, helper, kubelet, logger, dataDir, cdiDir, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

function podWithClaim(options: Partial<Parameters<typeof buildClaim>[1]> = {}) {
  const pod = buildPod('app', { resourceClaims: [{ name: 'nic', resourceClaimName: 'fast-net' }] });
  const claim = buildClaim('fast-net', { requests: [{ name: 'vf', devices: ['dev-1'] }], pods: [pod], ...options });
  return { pod, claim };
}

const wire = (claim: { metadata: { name: string; namespace: string; uid: string } }) => ({
  namespace: claim.metadata.namespace,
  name: claim.metadata.name,
  uid: claim.metadata.uid,
});

describe('startKubeletPlugin', () => {
  it('registers with v1 before v1beta1', async () => {
    await using bench = await startBench();
    expect(bench.kubelet.plugins(testDriver)).toMatchObject([{ driver: testDriver, service: 'v1.DRAPlugin' }]);
    expect(bench.logger.messages()).toContain('registered with the kubelet');
  });

  it('removes its sockets when it stops', async () => {
    const bench = await startBench();
    const socket = join(bench.dataDir, 'dra.sock');
    expect(existsSync(socket)).toBe(true);
    await bench.helper[Symbol.asyncDispose]();
    expect(existsSync(socket)).toBe(false);
    await bench[Symbol.asyncDispose]();
  });

  it('refuses a socket path that does not fit into an address', async () => {
    const long = join('/tmp', 'x'.repeat(120));
    const options = {
      driver: 'd.example',
      dataDir: long,
      registryDir: long,
      clock: systemClock,
      logger: new RecordingLogger(),
    };
    const reader = { readClaim: () => Promise.reject(new Error('not called')) };
    await expect(startKubeletPlugin({} as DraPlugin, { ...options, claims: reader })).rejects.toThrow(
      /longer than 107 bytes/,
    );
  });
});

describe('NodePrepareResources', () => {
  it('answers an empty result with the devices of the allocation, a CDI id for each request, and no file', async () => {
    await using bench = await startBench();
    const requests = [
      { name: 'a', devices: ['dev-1', 'dev-2'] },
      { name: 'b', devices: ['dev-3'] },
    ];
    const { pod, claim } = podWithClaim({ requests });
    bench.api.create(claim);
    await bench.kubelet.prepare(pod);
    const id = (request: string) => `${testDriver}/metadata=${claim.metadata.uid}_${request}`;
    expect(bench.kubelet.cdiDevicesFor('default', 'fast-net', 'a')).toEqual([id('a')]);
    expect(bench.kubelet.cdiDevicesFor('default', 'fast-net', 'b')).toEqual([id('b')]);
    expect(readdirSync(bench.cdiDir).sort()).toEqual(
      ['a', 'b'].map((request) => `${testDriver}_metadata_${claim.metadata.uid}_${request}.json`),
    );
    const claimDir = join(bench.dataDir, 'dra-device-metadata/default_fast-net');
    expect(readdirSync(claimDir)).toEqual(['claim.json']);
  });

  it('leaves devices of other drivers alone', async () => {
    await using bench = await startBench();
    const requests = [{ name: 'mixed', devices: ['dev-1', { device: 'gpu-0', driver: 'gpu.example', pool: 'gpus' }] }];
    const { claim } = podWithClaim({ requests });
    bench.api.create(claim);
    const answer = await bench.kubelet.client(testDriver).nodePrepareResources([wire(claim)]);
    expect(answer.claims[claim.metadata.uid]?.devices).toMatchObject([
      { deviceName: 'dev-1', requestNames: ['mixed'] },
    ]);
  });

  it('uses the base name of a subrequest for paths and CDI, and the full reference in the document', async () => {
    await using bench = await startBench();
    const requests = [{ name: 'vf', subrequest: 'large', devices: ['dev-1'] }];
    const { pod, claim } = podWithClaim({ requests });
    bench.api.create(claim);
    await bench.kubelet.prepare(pod);
    const identity = wire(claim);
    await bench.helper.updateRequestMetadata(identity, 'vf', [{ driver: testDriver, pool: 'node-1', name: 'dev-1' }]);
    const file = join(bench.dataDir, 'dra-device-metadata/default_fast-net/vf/metadata.json');
    expect(readFileSync(file, 'utf8')).toContain('"name": "vf/large"');
  });

  it('writes metadata that the driver has already, and the identity of a device without any', async () => {
    const devices: PreparedDevice[] = [
      {
        requests: ['a'],
        poolName: 'node-1',
        deviceName: 'dev-1',
        cdiDeviceIds: ['x/y=z'],
        metadata: { attributes: { model: { string: 'm' } } },
      },
      { requests: ['b'], poolName: 'node-1', deviceName: 'dev-2', cdiDeviceIds: [] },
      { requests: ['c'], poolName: 'node-1', deviceName: 'dev-3', cdiDeviceIds: [], metadata: 'deferred' },
    ];
    await using bench = await startBench({ devices });
    const requests = devices.map(({ requests: [name = ''], deviceName }) => ({ name, devices: [deviceName] }));
    const { pod, claim } = podWithClaim({ requests });
    bench.api.create(claim);
    await bench.kubelet.prepare(pod);
    const dir = join(bench.dataDir, 'dra-device-metadata/default_fast-net');
    expect(readFileSync(join(dir, 'a/metadata.json'), 'utf8')).toContain('"model"');
    expect(readFileSync(join(dir, 'b/metadata.json'), 'utf8')).toContain('"name": "dev-2"');
    expect(existsSync(join(dir, 'c/metadata.json'))).toBe(false);
    const own = `${testDriver}/metadata=${claim.metadata.uid}_a`;
    expect(bench.kubelet.cdiDevicesFor('default', 'fast-net', 'a')).toEqual(['x/y=z', own]);
  });

  it('tells a claim from a template by its annotation', async () => {
    await using bench = await startBench();
    const pod = buildPod('app', { resourceClaims: [{ name: 'nic', resourceClaimTemplateName: 'nics' }] });
    bench.api.create(pod);
    const claim = generateClaim(pod, 'nic', { requests: [{ name: 'vf', devices: ['dev-1'] }] });
    bench.api.create(claim);
    await bench.kubelet.prepare(pod);
    const [spec = ''] = readdirSync(bench.cdiDir);
    expect(readFileSync(join(bench.cdiDir, spec), 'utf8')).toContain('/resourceclaimtemplates/nic/vf/');
  });

  it('fetches all claims of a call at once', async () => {
    await using bench = await startBench();
    const claims = Array.from({ length: 16 }, (_, n) =>
      buildClaim(`c-${n}`, { requests: [{ name: 'vf', devices: [`dev-${n}`] }] }),
    );
    for (const claim of claims) bench.api.create(claim);
    bench.api.delay('/resourceclaims/', 100);
    await bench.kubelet.client(testDriver).nodePrepareResources(claims.map(wire));
    const gets = bench.api.log.filter(({ path }) => path.includes('/resourceclaims/'));
    expect(gets).toHaveLength(16);
    const lastStart = Math.max(...gets.map(({ startedMs }) => startedMs));
    const firstEnd = Math.min(...gets.map(({ endedMs }) => endedMs ?? Infinity));
    expect(lastStart).toBeLessThan(firstEnd);
  });

  it.each([
    ['is not there', undefined, /get resource claims: retrieve claim default\/fast-net: /],
    ['is not allocated', { allocated: false }, /get resource claims: claim default\/fast-net not allocated/],
    ['got replaced', { uid: 'another' }, /get resource claims: claim default\/fast-net got replaced/],
  ])('fails the whole call when a claim %s', async (_what, stored, message) => {
    await using bench = await startBench();
    const { claim } = podWithClaim();
    if (stored !== undefined) bench.api.create(podWithClaim(stored).claim);
    const target = { ...wire(claim), ...(stored && 'allocated' in stored ? {} : { uid: 'asked-for' }) };
    await expect(bench.kubelet.client(testDriver).nodePrepareResources([target])).rejects.toThrow(message);
  });

  it("reports the driver's error for the claim, and the others' results", async () => {
    await using bench = await startBench({
      prepareResourceClaims: async (claims) =>
        new Map(
          claims.map(({ identity }): [string, PrepareResult] => [
            identity.uid,
            identity.name === 'bad' ? { error: new Error('no such VF') } : { devices: [] },
          ]),
        ),
    });
    const good = buildClaim('good', { requests: [{ name: 'vf', devices: ['dev-1'] }] });
    const bad = buildClaim('bad', { requests: [{ name: 'vf', devices: ['dev-2'] }] });
    for (const claim of [good, bad]) bench.api.create(claim);
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([wire(good), wire(bad)]);
    expect(claims[bad.metadata.uid]?.error).toBe('no such VF');
    expect(claims[good.metadata.uid]?.error).toBe('');
    expect(claims[good.metadata.uid]?.devices).toHaveLength(1);
  });

  it('fails the claim when its metadata cannot be laid down', async () => {
    await using bench = await startBench();
    const { claim } = podWithClaim();
    bench.api.create(claim);
    const inTheWay = join(bench.dataDir, 'dra-device-metadata');
    writeFileSync(inTheWay, '');
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([wire(claim)]);
    expect(claims[claim.metadata.uid]?.error).toMatch(`cannot read ${inTheWay}/default_fast-net/claim.json: ENOTDIR`);
  });

  it.each([
    ['has no pool', { requests: ['vf'], poolName: '', deviceName: 'dev-1' }, /a device has no pool or no name/],
    [
      'is for another request',
      { requests: ['x'], poolName: 'p', deviceName: 'd' },
      /is for request x, which is not allocated/,
    ],
  ])('fails the claim when a device of the driver %s', async (_what, device, message) => {
    await using bench = await startBench({ devices: [{ ...device, cdiDeviceIds: [] }] });
    const { claim } = podWithClaim();
    bench.api.create(claim);
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([wire(claim)]);
    expect(claims[claim.metadata.uid]?.error).toMatch(message);
  });

  it('names a claim for which the driver has no answer', async () => {
    await using bench = await startBench({ prepareResourceClaims: async () => new Map() });
    const { claim } = podWithClaim();
    bench.api.create(claim);
    const { claims } = await bench.kubelet.client(testDriver).nodePrepareResources([wire(claim)]);
    expect(claims[claim.metadata.uid]?.error).toBe('the driver gave no result');
  });

  it('calls the driver once at a time', async () => {
    let running = 0;
    let most = 0;
    await using bench = await startBench({
      prepareResourceClaims: async (claims) => {
        most = Math.max(most, ++running);
        await systemClock.sleep(20);
        running--;
        return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
      },
    });
    const claims = ['a', 'b', 'c'].map((name) => buildClaim(name, { requests: [{ name: 'vf', devices: [name] }] }));
    for (const claim of claims) bench.api.create(claim);
    await Promise.all(claims.map((claim) => bench.kubelet.client(testDriver).nodePrepareResources([wire(claim)])));
    expect(most).toBe(1);
  });

  it('serves v1beta1 alike', async () => {
    await using bench = await startBench();
    const { claim } = podWithClaim();
    bench.api.create(claim);
    using client = new DraClient(join(bench.dataDir, 'dra.sock'), 'v1beta1.DRAPlugin');
    const { claims } = await client.nodePrepareResources([wire(claim)]);
    expect(claims[claim.metadata.uid]?.devices).toMatchObject([{ deviceName: 'dev-1' }]);
  });
});

describe('NodeUnprepareResources', () => {
  it('removes files and CDI specs, needs no API server, and can be repeated', async () => {
    await using bench = await startBench();
    const { pod, claim } = podWithClaim();
    bench.api.create(claim);
    await bench.kubelet.prepare(pod);
    await bench.helper.updateRequestMetadata(wire(claim), 'vf', [
      { driver: testDriver, pool: 'node-1', name: 'dev-1' },
    ]);
    const requestsBefore = bench.api.log.length;
    for (let round = 0; round < 2; round++) {
      const { claims } = await bench.kubelet.client(testDriver).nodeUnprepareResources([wire(claim)]);
      expect(claims[claim.metadata.uid]?.error).toBe('');
    }
    expect(bench.api.log).toHaveLength(requestsBefore);
    expect(readdirSync(bench.cdiDir)).toEqual([]);
    expect(readdirSync(join(bench.dataDir, 'dra-device-metadata'))).toEqual([]);
  });

  it('keeps the files when the driver could not give the devices back', async () => {
    await using bench = await startBench({
      unprepareResourceClaims: async (claims) => new Map(claims.map(({ uid }) => [uid, new Error('VF is stuck')])),
    });
    const { pod, claim } = podWithClaim();
    bench.api.create(claim);
    await bench.kubelet.prepare(pod);
    const { claims } = await bench.kubelet.client(testDriver).nodeUnprepareResources([wire(claim)]);
    expect(claims[claim.metadata.uid]?.error).toBe('VF is stuck');
    expect(readdirSync(bench.cdiDir)).toHaveLength(1);
  });
});
