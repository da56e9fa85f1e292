import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import { decodeMetadata } from '../../../../src/framework/metadata/document/decode.ts';
import { decodeStream } from '../../../../src/framework/metadata/index.ts';
import { itWith } from '../../../doubles/it-with.ts';
import { buildPod, generateClaim, testDriver } from '../../../doubles/objects.ts';
import { Bench, preparedDevice, startBench } from './bench.ts';

const it = itWith(() => startBench());

const root = '/var/run/kubernetes.io/dra-device-attributes';
const fileName = `${testDriver}-metadata.json`;
const pathOf = (claim: string, request: string) => `${root}/resourceclaims/${claim}/${request}/${fileName}`;
const owned = (name: string, more: object = {}) => ({ driver: testDriver, pool: 'node-1', name, ...more });
const decode = (text: string | undefined) => decodeStream(text ?? '');

const everyKind = {
  model: { string: 'X710' },
  vfIndex: { int: 3 },
  trusted: { bool: false },
  firmware: { version: '1.2.3' },
};

describe('metadata known at prepare', () => {
  it('KEP-5304 integration "Empty metadata": writes a file with only the device\'s identity', async () => {
    await using bench = await startBench({ devices: [preparedDevice('dev-a')] });
    const { pod } = await bench.preparePod('a');
    const document = decode(bench.mountsOf(pod)[pathOf('a', 'vf')]);
    expect(document).toMatchObject({ generation: 1, devices: [owned('dev-a')] });
    expect(Object.keys(document.devices[0] ?? {}).sort()).toEqual(['driver', 'name', 'pool']);
  });

  it('takes the identity of a device from the allocation, whatever its metadata says', async () => {
    const metadata = { driver: 'gpu.example', pool: 'x', name: 'x', shareId: 's', attributes: everyKind };
    await using bench = await startBench({ devices: [preparedDevice('dev-a', { metadata })] });
    await bench.preparePod('a');
    expect(decode(bench.metadataText('a', 'vf')).devices).toEqual([owned('dev-a', { attributes: everyKind })]);
  });

  it.each(Object.entries(everyKind))(
    'KEP-5304 integration "Attribute types": writes %s as %j',
    async (name, attribute) => {
      await using bench = await startBench({
        devices: [preparedDevice('dev-a', { metadata: { attributes: { [name]: attribute } } })],
      });
      await bench.preparePod('a');
      expect(decode(bench.metadataText('a', 'vf')).devices[0]?.attributes).toEqual({ [name]: attribute });
    },
  );

  it('KEP-5304 "Multi-Driver Safety": two drivers of one request write separate files', async () => {
    await using bench = await Bench.start();
    const other = 'gpu.example';
    await bench.startHelper({ devices: [preparedDevice('dev-a')] });
    await bench.startHelper({ devices: [preparedDevice('gpu-0', { poolName: 'gpus' })] }, { driver: other });
    const devices = ['dev-a', { device: 'gpu-0', driver: other, pool: 'gpus' }];
    const { pod } = await bench.preparePod('a', { requests: [{ name: 'vf', devices }] });
    const mounts = bench.mountsOf(pod);
    expect(Object.keys(mounts).sort()).toEqual(
      [other, testDriver].map((driver) => `${root}/resourceclaims/a/vf/${driver}-metadata.json`),
    );
    expect(decode(mounts[pathOf('a', 'vf')]).devices).toMatchObject([{ name: 'dev-a' }]);
  });
});

describe('deferred metadata', () => {
  it('an empty result writes a CDI spec per request, and no file (requirement 1.11)', async ({ own: bench }) => {
    const requests = ['x', 'y'].map((name) => ({ name, devices: [`dev-${name}`] }));
    const { pod, claim } = await bench.preparePod('a', { requests });
    expect(bench.cdiSpecs()).toEqual(
      ['x', 'y'].map((name) => `${testDriver}_metadata_${claim.metadata.uid}_${name}.json`),
    );
    expect(bench.mountsOf(pod)).toEqual({ [pathOf('a', 'x')]: undefined, [pathOf('a', 'y')]: undefined });
  });

  it('an update keeps the pod’s name for the claim, and replaces all devices (requirement 1.8)', async () => {
    await using bench = await startBench();
    const pod = buildPod('app', { resourceClaims: [{ name: 'nic', resourceClaimTemplateName: 'nics' }] });
    bench.api.create(pod);
    const claim = generateClaim(pod, 'nic', { requests: [{ name: 'vf', devices: ['dev-1', 'dev-2'] }] });
    bench.api.create(claim);
    await bench.kubelet.prepare(pod);
    const { namespace, name, uid } = claim.metadata;
    const identity = { namespace, name, uid };
    await bench.helper.updateRequestMetadata(identity, 'vf', [
      owned('dev-1', { attributes: { a: { int: 1 } } }),
      owned('dev-2'),
    ]);
    await bench.helper.updateRequestMetadata(identity, 'vf', [owned('dev-1')]);
    const path = `${root}/resourceclaimtemplates/nic/vf/${fileName}`;
    expect(decode(bench.mountsOf(pod)[path])).toMatchObject({ podClaimName: 'nic', generation: 2 });
    expect(decode(bench.mountsOf(pod)[path]).devices).toEqual([owned('dev-1')]);
  });

  it.each([
    ['of another UID', { uid: 'other' }, 'vf', 'dev-a', testDriver, /prepared with UID \S+, not other$/],
    [
      'that is not prepared',
      { name: 'other' },
      'vf',
      'dev-a',
      testDriver,
      /claim default\/other: the claim is not prepared$/,
    ],
    ['for another request', {}, 'x', 'dev-a', testDriver, /request x is not prepared$/],
    ['with a device of another claim', {}, 'vf', 'dev-b', testDriver, /device \S+\/dev-b is not prepared for/],
    ["with another driver's device", {}, 'vf', 'dev-a', 'gpu.example', /device gpu.example\/\S+ is not prepared for/],
  ])('KEP-5304 "MetadataUpdater": rejects a claim %s', async (_what, other, request, name, driver, message) => {
    await using bench = await startBench();
    const { wire } = await bench.preparePod('a');
    await expect(
      bench.helper.updateRequestMetadata({ ...wire, ...other }, request, [{ ...owned(name), driver }]),
    ).rejects.toMatchObject({ code: 'metadata-not-prepared', message: expect.stringMatching(message) });
    expect(bench.metadataText('a', 'vf')).toBeUndefined();
  });

  it.each([
    ['another device of the request', ['vf']],
    ['a device for all requests', []],
  ])('waits for an allocated device that the driver does not return, although it returns %s', async (_what, names) => {
    await using bench = await startBench({ devices: [preparedDevice('dev-1', { requests: names })] });
    const devices = ['dev-1', 'dev-2'];
    const { pod, wire } = await bench.preparePod('a', { requests: [{ name: 'vf', devices }] });
    expect(Object.keys(bench.mountsOf(pod))).toEqual([pathOf('a', 'vf')]);
    expect(bench.metadataText('a', 'vf')).toBeUndefined();
    const known = bench.kubelet.claimInfo('default', 'a')?.devices.get(testDriver) ?? [];
    for (const deviceName of devices) expect(known).toContainEqual(expect.objectContaining({ deviceName }));
    await bench.helper.updateRequestMetadata(
      wire,
      'vf',
      devices.map((name) => owned(name)),
    );
    expect(decode(bench.metadataText('a', 'vf')).devices).toEqual(devices.map((name) => owned(name)));
  });

  it('only a request with a deferred device, or without devices in the result, is deferred (requirement 1.7)', async () => {
    const devices = [
      preparedDevice('dev-1', { requests: ['x'] }),
      preparedDevice('dev-2', { requests: ['y'] }),
      preparedDevice('dev-3', { requests: ['y'], metadata: 'deferred' }),
    ];
    await using bench = await startBench({ devices });
    const requests = [
      { name: 'x', devices: ['dev-1'] },
      { name: 'y', devices: ['dev-2', 'dev-3'] },
      { name: 'z', devices: ['dev-4'] },
    ];
    const { pod, wire } = await bench.preparePod('a', { requests });
    expect(bench.metadataText('a', 'x')).toContain('dev-1');
    expect(Object.keys(bench.mountsOf(pod))).toEqual(['x', 'y', 'z'].map((name) => pathOf('a', name)));
    expect(['y', 'z'].map((name) => bench.metadataText('a', name))).toEqual([undefined, undefined]);
    expect(await bench.helper.updateRequestMetadata(wire, 'z', [owned('dev-4')])).toMatchObject({ generation: 1 });
  });
});

describe('metadata paths', () => {
  it('include host file, CDI spec and container file of a plain claim (requirement 1.3)', async () => {
    await using bench = await startBench({ devices: [preparedDevice('dev-a')] });
    const { claim } = await bench.preparePod('a');
    const [spec = ''] = bench.cdiSpecs();
    expect(spec).toBe(`${testDriver}_metadata_${claim.metadata.uid}_vf.json`);
    expect(JSON.parse(readFileSync(join(bench.cdiDir, spec), 'utf8'))).toMatchObject({
      kind: `${testDriver}/metadata`,
      devices: [
        {
          name: `${claim.metadata.uid}_vf`,
          containerEdits: {
            mounts: [
              {
                hostPath: join(bench.dataDir(), 'dra-device-metadata/default_a/vf/metadata.json'),
                containerPath: pathOf('a', 'vf'),
                options: ['ro', 'bind'],
              },
            ],
          },
        },
      ],
    });
  });

  it("contain only the request's name (vf) of a subrequest vf/large; the document names vf/large (requirement 1.3)", async () => {
    await using bench = await startBench();
    const requests = [{ name: 'vf', subrequest: 'large', devices: ['dev-1'] }];
    const { pod, wire } = await bench.preparePod('a', { requests });
    await bench.helper.updateRequestMetadata(wire, 'vf/large', [owned('dev-1')]);
    expect(decode(bench.mountsOf(pod)[pathOf('a', 'vf')]).request).toBe('vf/large');
  });
});

describe('a claim created by the scheduler for extended resources', () => {
  const annotations = { 'resource.kubernetes.io/extended-resource-claim': 'true' };
  const request = { name: 'container-0-request-0', deviceClassName: 'vfs', devices: ['dev-1'] };
  const ofResource = (name: string) => `${root}/extended-resources/${name}/${testDriver}-metadata.json`;
  const deviceClass = (name: string, extendedResourceName?: string) => ({
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name },
    spec: extendedResourceName === undefined ? {} : { extendedResourceName },
  });

  it('has its files under the names of the resources as well, and updates them there', async () => {
    await using bench = await startBench();
    bench.api.create(deviceClass('vfs', 'intel.com/intel_sriov_netdevice'));
    const { pod, wire } = await bench.preparePod('a', { annotations, requests: [request] });
    await bench.helper.updateRequestMetadata(wire, request.name, [owned('dev-1')]);
    const mounts = bench.mountsOf(pod);
    const paths = [
      pathOf('a', request.name),
      ofResource('intel.com/intel_sriov_netdevice'),
      ofResource('deviceclass.resource.kubernetes.io/vfs'),
    ];
    expect(Object.keys(mounts)).toEqual(paths);
    for (const path of paths) expect(decode(mounts[path])).toMatchObject({ request: request.name, generation: 1 });
  });

  it('uses the resource name that Kubernetes derives from the class if the class itself provides none', async () => {
    await using bench = await startBench();
    bench.api.create(deviceClass('vfs'));
    for (const name of ['a', 'b']) {
      const { pod } = await bench.preparePod(name, { annotations, requests: [request] });
      const expected = [pathOf(name, request.name), ofResource('deviceclass.resource.kubernetes.io/vfs')];
      expect(Object.keys(bench.mountsOf(pod))).toEqual(expected);
      bench.api.delete('DeviceClass', 'vfs');
    }
  });

  describe('with two requests for one resource', () => {
    const requests = [1, 2].map((index) => {
      return { ...request, name: `container-${index}-request-0`, devices: [`dev-${index}`] };
    });
    const map = (containerName: string, index: number) => {
      return { containerName, requestName: `container-${index}-request-0`, resourceName: 'intel.com/nic' };
    };
    /** The scheduler lets the init container share the requests of the two containers. */
    const requestMappings = [map('main', 1), map('other', 2), map('setup', 1), map('setup', 2)];
    const shared = 'setup+container-1-request-0';

    const stage = (bench: Bench, status: object, podName = 'a') => {
      bench.api.create(deviceClass('vfs', 'intel.com/nic'));
      const added = bench.addPod('a', { annotations, requests });
      const { metadata } = added.pod;
      bench.api.create({ ...added.pod, metadata: { ...metadata, name: podName }, status });
      return added;
    };

    it('shows one file, updated for both requests, to a container that uses both', async () => {
      await using bench = await startBench();
      const extendedResourceClaimStatus = { resourceClaimName: 'a', requestMappings };
      const { pod, wire } = stage(bench, { extendedResourceClaimStatus });
      await bench.kubelet.prepare(pod);
      expect(bench.metadataText('a', shared)).toBeUndefined();
      const update = (index: number, interfaceName: string) =>
        bench.helper.updateRequestMetadata(wire, `container-${index}-request-0`, [
          owned(`dev-${index}`, { networkData: { interfaceName } }),
        ]);
      await update(1, 'net1');
      expect(bench.metadataText('a', shared)).toBeUndefined();
      const read = () => decodeMetadata(bench.metadataText('a', shared) ?? '');
      const expected = (generation: number, names: [string, string]) => ({
        generation,
        requests: names.map((interfaceName, index) => ({
          name: `container-${index + 1}-request-0`,
          devices: [owned(`dev-${index + 1}`, { networkData: { interfaceName } })],
        })),
      });
      await update(2, 'net2');
      expect(read()).toMatchObject(expected(1, ['net1', 'net2']));
      await update(1, 'net3');
      expect(read()).toMatchObject(expected(2, ['net3', 'net2']));
      await bench.kubelet.unprepare(pod);
      expect(bench.claimDirs()).toEqual([]);
    });

    it.each([
      ['another claim', { extendedResourceClaimStatus: { resourceClaimName: 'b', requestMappings } }],
      ['nothing', {}],
      [
        'a container twice for one request',
        { extendedResourceClaimStatus: { resourceClaimName: 'a', requestMappings: [map('main', 1), map('main', 1)] } },
      ],
    ])('has no shared file if the pod status names %s', async (_what, status) => {
      await using bench = await startBench({ devices: [] });
      const { pod, wire } = stage(bench, status);
      await bench.kubelet.prepare(pod);
      for (const { name, devices } of requests)
        await bench.helper.updateRequestMetadata(wire, name, [owned(devices[0]!)]);
      const found = readdirSync(join(bench.dataDir(testDriver), 'dra-device-metadata/default_a'));
      expect(found.filter((name) => name !== 'claim.json').sort()).toEqual(requests.map(({ name }) => name));
    });

    it('is not prepared while its pod is unreadable', async () => {
      await using bench = await startBench();
      const { wire } = stage(bench, {}, 'renamed');
      await expect(bench.kubelet.client(testDriver).nodePrepareResources([wire])).rejects.toMatchObject({
        details: expect.stringContaining('retrieve the extended resources of claim default/a'),
      });
    });
  });

  it('is not prepared while its DeviceClass is unreadable, unlike an ordinary claim', async () => {
    await using bench = await startBench();
    using _down = bench.api.failNext('/deviceclasses/', 500, { times: Number.POSITIVE_INFINITY });
    const claim = bench.addPod('a', { annotations, requests: [request] }).wire;
    const other = bench.addPod('b', { requests: [request] }).wire;
    const client = bench.kubelet.client(testDriver);
    expect((await client.nodePrepareResources([other])).claims[other.uid]?.error).toBe('');
    await expect(client.nodePrepareResources([claim])).rejects.toMatchObject({
      details: expect.stringContaining('retrieve the extended resources of claim default/a'),
    });
  });
});

describe('isolation of containers', () => {
  const containers = [
    { name: 'whole', claims: [{ name: 'nic' }] },
    { name: 'left', claims: [{ name: 'nic', request: 'left' }] },
    { name: 'right', claims: [{ name: 'nic', request: 'right' }] },
    { name: 'none', claims: [] },
  ];
  const requests = ['left', 'right'].map((name) => ({ name, devices: [`dev-${name}`] }));

  it.each([
    ['the devices of the allocation', []],
    ['a device for each request', ['left', 'right'].map((name) => preparedDevice(`dev-${name}`, { requests: [name] }))],
    ['one device for all requests', [preparedDevice('dev-left', { requests: [] })]],
    ['one device for both requests', [preparedDevice('dev-left', { requests: ['left', 'right'] })]],
  ])(
    'KEP-5304 integration "Container isolation": a container has only its own requests, with %s',
    async (_what, devices) => {
      await using bench = await startBench({ devices });
      const { pod } = await bench.preparePod('a', { containers, requests });
      const seen = (name: string) => Object.keys(bench.mountsOf(pod, name)).sort();
      expect(seen('whole')).toEqual([pathOf('a', 'left'), pathOf('a', 'right')]);
      expect(seen('left')).toEqual([pathOf('a', 'left')]);
      expect(seen('right')).toEqual([pathOf('a', 'right')]);
      expect(seen('none')).toEqual([]);
    },
  );

  it('a device for all requests reaches every container of the claim, only once (requirement 3.2)', async () => {
    await using bench = await startBench({
      devices: [preparedDevice('dev-left', { requests: [], cdiDeviceIds: ['x.example/nic=1'] })],
    });
    const { pod } = await bench.preparePod('a', { containers, requests });
    for (const name of ['whole', 'left', 'right']) {
      const ids = bench.kubelet.cdiDevicesForContainer(pod, name);
      expect(ids.filter((id) => id === 'x.example/nic=1')).toHaveLength(1);
    }
    expect(bench.kubelet.cdiDevicesForContainer(pod, 'none')).toEqual([]);
  });

  it("the driver's own CDI IDs precede the metadata mount (requirement 1.4)", async () => {
    await using bench = await startBench({ devices: [preparedDevice('dev-a', { cdiDeviceIds: ['x.example/nic=1'] })] });
    const { pod, claim } = await bench.preparePod('a');
    expect(bench.kubelet.cdiDevicesForContainer(pod, 'main')).toEqual([
      'x.example/nic=1',
      `${testDriver}/metadata=${claim.metadata.uid}_vf`,
    ]);
  });
});

describe('metadata disabled', () => {
  it.each([
    ['never on', false as const],
    ['off', { enabled: false }],
    ['unset', { enabled: undefined as never, marker: 'CLAIM_' }],
  ])('KEP-5304 integration "Enable/disable": writes no specs and no files if %s', async (_what, metadata) => {
    await using bench = await startBench({ devices: [preparedDevice('dev-a', { metadata: {} })] }, { metadata });
    const { pod } = await bench.preparePod('a');
    expect(bench.kubelet.cdiDevicesForContainer(pod, 'main')).toEqual([]);
    expect([bench.cdiSpecs(), bench.claimDirs()]).toEqual([[], []]);
    await bench.kubelet.unprepare(pod);
  });

  it('KEP-5304 "Downgrade": pods prepared before metadata is disabled keep their files until they end', async () => {
    await using bench = await startBench({ devices: [preparedDevice('dev-a')] });
    const { pod } = await bench.preparePod('a');
    await bench.helper[Symbol.asyncDispose]();
    await bench.startHelper({}, { metadata: { enabled: false } });
    expect(decode(bench.mountsOf(pod)[pathOf('a', 'vf')]).generation).toBe(1);
    await bench.kubelet.unprepare(pod);
    expect([bench.cdiSpecs(), bench.claimDirs()]).toEqual([[], []]);
  });
});

it('failed metadata writes are reported to the driver, and the claim is not prepared until they succeed', async () => {
  const errors: Error[] = [];
  const options = { onMetadataError: (error: Error) => void errors.push(error) };
  await using bench = await startBench({ devices: [preparedDevice('dev-a')] }, options);
  const { pod } = bench.addPod('a');
  rmSync(bench.cdiDir, { recursive: true, force: true });
  writeFileSync(bench.cdiDir, 'no folder');
  await expect(bench.kubelet.prepare(pod)).rejects.toThrow(/cannot read .*cdi.*ENOTDIR/);
  expect(errors).toMatchObject([{ message: expect.stringContaining(bench.cdiDir) }]);
  rmSync(bench.cdiDir);
  mkdirSync(bench.cdiDir);
  await bench.kubelet.prepare(pod);
  expect(errors).toHaveLength(1);
});
