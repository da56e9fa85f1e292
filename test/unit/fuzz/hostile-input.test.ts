import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { Client, credentials, status } from '@grpc/grpc-js';
import { describe, expect } from 'vitest';
import { type ClaimReader, startKubeletPlugin } from '../../../src/framework/kubeletplugin/index.ts';
import { ClaimMetadata, type LayoutName, layoutNames, layouts } from '../../../src/framework/metadata/index.ts';
import { itWith } from '../../doubles/it-with.ts';
import { DraClient, type WireClaim } from '../../doubles/kubelet-dra-client.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { buildClaim, buildPod, type ClaimOptions, testDriver } from '../../doubles/objects.ts';
import { DriverBench } from '../driver/claims/driver-bench.ts';

type Claim = ReturnType<typeof buildClaim>;

/** The driver behind its socket, with an API server that returns any claim added to it, unchecked. */
async function startDriver(layoutNames: readonly LayoutName[] = ['v1', 'kep']) {
  const stack = new AsyncDisposableStack();
  const bench = stack.use(new DriverBench());
  const dataDir = join(bench.dir, 'plugins', testDriver);
  const registryDir = join(bench.dir, 'registry');
  mkdirSync(registryDir);
  const known = new Map<string, Claim>();
  const claims: ClaimReader = {
    async readClaim(namespace, name) {
      const claim = known.get(`${namespace}/${name}`);
      if (claim === undefined) throw new Error('not found');
      return claim;
    },
  };
  const metadata = new ClaimMetadata({
    enabled: true,
    driver: testDriver,
    dataDir,
    cdiDir: bench.cdiDir,
    attributesDir: join(bench.dir, 'attributes'),
    downwardApiDir: join(bench.dir, 'downward'),
    layouts: layoutNames.map((name) => layouts[name]),
  });
  const logger = new RecordingLogger();
  const options = { driver: testDriver, dataDir, registryDir, claims, metadata, logger };
  const helper = stack.use(await startKubeletPlugin(bench.driver, options));
  const kubelet = stack.use(new DraClient(helper.sockets.dra));
  const add = (name: string, more: Partial<ClaimOptions> = {}): WireClaim => {
    const claim = buildClaim(name, {
      requests: [{ name: 'vf', devices: ['dev-1'] }],
      pods: [buildPod('app')],
      ...more,
    });
    const { namespace, uid } = claim.metadata;
    known.set(`${namespace}/${name}`, claim);
    return { namespace, name, uid };
  };
  /** All files that there are, without those of the state store, sockets and locks. */
  const files = () =>
    readdirSync(bench.dir, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && !/\.lock$|^state\.db/.test(entry.name))
      .map((entry) => relative(bench.dir, join(entry.parentPath, entry.name)));
  return { bench, helper, kubelet, add, files, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

const it = itWith(() => startDriver());

const longName = `${'x'.repeat(247)}.example`;

it.each([
  ['name', '..'],
  ['name', '.'],
  ['name', '../../../x'],
  ['name', 'a/b'],
  ['name', 'nul\0'],
  ['name', longName],
  ['namespace', '..'],
  ['namespace', '../..'],
  ['uid', '..'],
  ['uid', '../../x'],
  ['uid', 'a/b'],
])('a claim with the invalid %s %j fails without affecting other claims or any files', async (field, text) => {
  await using driver = await startDriver(layoutNames);
  writeFileSync(join(driver.bench.dir, 'beside.json'), 'of another program');
  const hostile = driver.add(field === 'name' ? text : 'fast-net', field === 'name' ? {} : { [field]: text });
  const good = driver.add('good', { requests: [{ name: 'vf', devices: ['dev-2'] }] });
  const { claims } = await driver.kubelet.nodePrepareResources([hostile, good]);
  expect(claims[hostile.uid]?.error).toMatch(/cannot be part of a path/);
  expect(claims[good.uid]).toMatchObject({ error: '', devices: [{ deviceName: 'dev-2' }] });
  await driver.kubelet.nodeUnprepareResources([hostile, good]);
  expect(driver.files()).toEqual(['beside.json']);
  expect(readFileSync(join(driver.bench.dir, 'beside.json'), 'utf8')).toBe('of another program');
});

/**
 * Parameters of a VFConfig that are so many bytes as JSON: `@` in the fields stands for what fills them up, `[@]` for
 * lists in lists.
 */
function configOf(bytes: number, fields: string): object {
  const text = `{"apiVersion":"netdra.dev/v1alpha1","kind":"VFConfig",${fields}}`;
  const missing = bytes - text.replace(/\[@\]|@/, '').length;
  const depth = Math.floor(missing / 2);
  const lists = '['.repeat(depth) + ' '.repeat(missing % 2) + ']'.repeat(depth);
  const filled = text.replace('[@]', lists).replace('@', 'x'.repeat(missing));
  expect(filled.length).toBe(bytes);
  return JSON.parse(filled);
}

/** The most that the API server takes, and more than that. Source: resource.k8s.io/v1 `OpaqueParametersMaxLength`. */
const sizes = [10 * 1024, 11 * 1024];

describe('opaque parameters', () => {
  it.each(sizes)('of %i valid bytes are stored unchanged', async (bytes) => {
    await using driver = await startDriver();
    const network = '"cni":{"cniVersion":"1.0.0","name":"fast","plugins":[{"type":"sriov","comment":"@"}]}';
    const parameters = configOf(bytes, `"attach":"cni",${network}`);
    const claim = driver.add('fast-net', { config: [{ source: 'FromClass', parameters }] });
    const { claims } = await driver.kubelet.nodePrepareResources([claim]);
    expect(claims[claim.uid]?.error).toBe('');
    const { apiVersion: _apiVersion, kind: _kind, ...fields } = parameters as Record<string, unknown>;
    expect(driver.bench.store.claim(claim.uid)?.devices[0]?.config).toMatchObject(fields);
  });

  it.each(
    sizes.flatMap(
      (bytes) =>
        [
          [bytes, 'a long name', '"interfaceName":"@"'],
          [bytes, 'an unknown field', '"@":1'],
          [bytes, 'a long address', '"addresses":["@"]'],
          [
            bytes,
            'lists in lists',
            '"attach":"cni","cni":{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"a","b":[@]}]}',
          ],
          [bytes, 'a plugin that is a path', '"attach":"cni","cni":{"cniVersion":"1.0.0","name":"a","type":"../@"}'],
        ] as const,
    ),
  )('of %i bytes with %s fail their claim with a message shorter than the parameters', async (bytes, _, fields) => {
    await using driver = await startDriver();
    const hostile = driver.add('fast-net', { config: [{ source: 'FromClass', parameters: configOf(bytes, fields) }] });
    const good = driver.add('good', { requests: [{ name: 'vf', devices: ['dev-2'] }] });
    const { claims } = await driver.kubelet.nodePrepareResources([hostile, good]);
    const error = claims[hostile.uid]?.error ?? '';
    expect(error).toMatch(/^invalid .*claim default\/fast-net/);
    expect(error.length).toBeLessThan(bytes + 200);
    expect(claims[good.uid]?.error).toBe('');
    expect(driver.bench.store.claims().map(({ identity }) => identity.name)).toEqual(['good']);
  });
});

describe('huge claims', () => {
  it('are prepared if they have one VF among 5,000 devices of other drivers, and a megabyte of annotations', async ({
    own: driver,
  }) => {
    const others = Array.from({ length: 5000 }, (_, index) => ({ device: `gpu-${index}`, driver: 'gpu.example' }));
    const claim = driver.add('fast-net', {
      requests: [
        { name: 'gpus', devices: others },
        { name: 'vf', devices: ['dev-1'] },
      ],
      annotations: { note: 'x'.repeat(2 ** 20) },
    });
    const { claims } = await driver.kubelet.nodePrepareResources([claim]);
    expect(claims[claim.uid]).toMatchObject({ error: '', devices: [{ deviceName: 'dev-1' }] });
  });

  it('fail alone if they name thousands of devices that this node lacks', async ({ own: driver }) => {
    const devices = Array.from({ length: 5000 }, (_, index) => `dev-${index + 10}`);
    const hostile = driver.add('fast-net', { requests: [{ name: 'vf', devices }] });
    const good = driver.add('good', { requests: [{ name: 'vf', devices: ['dev-2'] }] });
    const { claims } = await driver.kubelet.nodePrepareResources([hostile, good]);
    expect(claims[hostile.uid]?.error).toMatch(/this node has no device node-1\/dev-10 /);
    expect(claims[hostile.uid]?.error.length).toBeLessThan(1000);
    expect(claims[good.uid]?.error).toBe('');
  });
});

describe('calls that no kubelet makes', () => {
  it('are rejected if too long, and the next call is served', async ({ own: driver }) => {
    const claim = driver.add('fast-net');
    const tooLong = driver.kubelet.nodePrepareResources([{ ...claim, name: 'x'.repeat(5 * 2 ** 20) }]);
    await expect(tooLong).rejects.toMatchObject({ code: status.RESOURCE_EXHAUSTED });
    expect((await driver.kubelet.nodePrepareResources([claim])).claims[claim.uid]?.error).toBe('');
  });

  it.each([
    ['invalid UTF-8 in a name', Buffer.from('0a0a0a02c3281202757a1a01ff', 'hex')],
    ['bytes that are not a message', Buffer.from('ffffffff', 'hex')],
    ['a length beyond the end', Buffer.from('0aff0f0a01', 'hex')],
    ['10,000 claims without a name', Buffer.alloc(20_000, Buffer.from([0x0a, 0x00]))],
  ])('with %s return an error, and the next call is served', async (_, bytes) => {
    await using driver = await startDriver();
    const claim = driver.add('fast-net');
    await expect(callRaw(driver.helper.sockets.dra, bytes)).rejects.toHaveProperty('details');
    expect((await driver.kubelet.nodePrepareResources([claim])).claims[claim.uid]?.error).toBe('');
  });
});

/** NodePrepareResources with these bytes in place of its message. */
async function callRaw(socket: string, bytes: Buffer): Promise<Buffer> {
  const client = new Client(`unix:${socket}`, credentials.createInsecure());
  const path = '/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources';
  const same = (buffer: Buffer) => buffer;
  try {
    return await new Promise((resolve, reject) =>
      client.makeUnaryRequest(path, same, same, bytes, (error, answer) => (error ? reject(error) : resolve(answer!))),
    );
  } finally {
    client.close();
  }
}
