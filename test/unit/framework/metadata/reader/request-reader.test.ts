import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type DeviceMetadata,
  type LayoutName,
  listRequests,
  type MetadataError,
  type RequestQuery,
  readRequestMetadata,
} from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, driver } from '../samples.ts';

const templateClaim = { namespace: 'default', name: 'app-nic-x7k2p', uid: 'template-uid' };
const v1Dir = 'var/run/kubernetes.io/dra-device-attributes/resourceclaims/fast-net/vf';
const kepDir = 'var/run/dra-device-attributes/fast-net/vf';

let bench: Bench;
beforeEach(() => {
  bench = new Bench();
});
afterEach(() => bench[Symbol.dispose]());

/** Prepares a claim with one request, as one driver, and enters a container that has it. */
async function container(
  options: {
    driver?: string;
    layouts?: LayoutName[];
    podClaimName?: string;
    request?: string;
    uid?: string;
    extendedResources?: string[];
  } = {},
) {
  const { driver: name = driver, layouts = ['v1', 'kep'], podClaimName, request = 'vf', uid } = options;
  const { extendedResources = [] } = options;
  const identity = { ...(podClaimName === undefined ? claim : templateClaim), ...(uid === undefined ? {} : { uid }) };
  const base = request.split('/')[0] ?? '';
  const device: DeviceMetadata = { driver: name, pool: 'node-1', name: `of-${name.split('.')[0]}` };
  const metadata = bench.start({ driver: name, dataDir: join(bench.dataDir, name), layouts });
  const record = { claim: identity, requests: { [base]: { name: request, devices: [device], extendedResources } } };
  await metadata.prepare({ ...record, ...(podClaimName === undefined ? {} : { podClaimName }) }, new Map());
  await metadata.update(identity, base, [device]);
  return { root: bench.enter(identity.uid, 'container', name), metadata, identity, device };
}

describe('readRequestMetadata', () => {
  it('reads a claim by its name', async () => {
    const { root, device } = await container();
    expect(await readRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root })).toEqual({
      claim,
      request: 'vf',
      devices: [device],
      files: [{ path: join(root, v1Dir, `${driver}-metadata.json`), driver, generation: 1 }],
    });
  });

  it("reads a template claim by the pod's name for it", async () => {
    for (const layouts of [['v1'], ['kep']] satisfies LayoutName[][]) {
      rmSync(join(bench.path, 'container'), { recursive: true, force: true });
      const { root } = await container({ podClaimName: 'nic', layouts });
      const metadata = await readRequestMetadata({ podClaim: 'nic', request: 'vf' }, { root });
      expect(metadata).toMatchObject({ claim: templateClaim, podClaimName: 'nic', request: 'vf' });
    }
  });

  it('does not return a ResourceClaim if asked for a template claim of the same name', async () => {
    const { root, device } = await container({ layouts: ['kep'] });
    const read = (query: object) => readRequestMetadata({ request: 'vf', ...query } as RequestQuery, { root });
    expect(await read({ claim: 'fast-net' })).toMatchObject({ devices: [device] });
    await expect(read({ podClaim: 'fast-net' })).rejects.toMatchObject({ code: 'metadata-not-found' });
  });

  it('reads a request for an extended resource', async () => {
    const { root, device } = await container({ extendedResources: ['example.com/vf'] });
    const query = { extendedResource: 'example.com/vf' };
    expect(await readRequestMetadata(query, { root })).toMatchObject({ claim, request: 'vf', devices: [device] });
    await expect(readRequestMetadata({ extendedResource: 'example.com/other' }, { root })).rejects.toMatchObject({
      code: 'metadata-not-found',
      message: expect.stringContaining('no metadata file for extended resource example.com/other in'),
      hint: expect.stringContaining('resources.limits'),
    });
    await expect(readRequestMetadata({ extendedResource: '../vf' }, { root })).rejects.toMatchObject({
      code: 'metadata-name-invalid',
    });
  });

  it('finds a subrequest by its base name, and returns the full reference', async () => {
    const { root } = await container({ request: 'vf/large' });
    for (const request of ['vf', 'vf/large', 'vf/other']) {
      expect(await readRequestMetadata({ claim: 'fast-net', request }, { root })).toMatchObject({
        request: 'vf/large',
      });
    }
  });

  it('merges the files of several drivers in the order of driver names, whatever their directory', async () => {
    await container({ driver: 'b.example' });
    await container({ driver: 'c.example', layouts: ['v1'] });
    const { root } = await container({ driver: 'a.example', layouts: ['kep'] });
    const { devices, files } = await readRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root });
    expect(devices.map(({ name }) => name)).toEqual(['of-a', 'of-b', 'of-c']);
    expect(files.map(({ path }) => path.slice(root.length + 1))).toEqual([
      `${kepDir}/a.example-metadata.json`,
      `${v1Dir}/b.example-metadata.json`,
      `${v1Dir}/c.example-metadata.json`,
    ]);
    const one = await readRequestMetadata({ claim: 'fast-net', request: 'vf', driver: 'b.example' }, { root });
    expect(one.devices.map(({ name }) => name)).toEqual(['of-b']);
  });

  it('rejects a mix of two claims', async () => {
    const { root } = await container({ driver: 'a.example' });
    await container({ driver: 'b.example', uid: 'another-uid' });
    await expect(readRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root })).rejects.toThrow(
      `metadata file ${join(root, v1Dir, 'b.example-metadata.json')} belongs to claim default/fast-net (another-uid)`,
    );
  });

  it('names the searched paths if there is no file', async () => {
    const { root } = await container();
    const read = (query: Parameters<typeof readRequestMetadata>[0]) => readRequestMetadata(query, { root });
    await expect(read({ claim: 'fast-net', request: 'gpu' })).rejects.toMatchObject({
      code: 'metadata-not-found',
      message: `no metadata file for claim fast-net, request gpu in ${join(root, dirname(v1Dir), 'gpu')} or ${join(root, dirname(kepDir), 'gpu')}`,
    });
    await expect(read({ podClaim: 'nic', request: 'vf' })).rejects.toThrow('no metadata file for pod claim nic');
    await expect(read({ claim: 'fast-net', request: 'vf', driver: 'gpu.example' })).rejects.toMatchObject({
      message: expect.stringContaining('no metadata file of driver gpu.example for claim fast-net'),
      hint: `there are files of ${driver}`,
    });
  });

  it.each([
    [{ claim: '..', request: 'vf' }, 'claim name ".." cannot be part of a path'],
    [{ podClaim: 'a/b', request: 'vf' }, 'pod claim name "a/b" cannot be part of a path'],
    [{ claim: 'fast-net', request: '../vf' }, 'request ".." cannot be part of a path'],
    [{ claim: 'fast-net', request: '' }, 'request "" cannot be part of a path'],
  ])('rejects %j', async (query, message) => {
    await expect(readRequestMetadata(query, { root: bench.path })).rejects.toThrow(message);
  });

  it('names the invalid file if only one of several is invalid', async () => {
    const { root } = await container({ driver: 'b.example' });
    const path = join(root, v1Dir, 'a.example-metadata.json');
    writeFileSync(path, '{');
    const error = await readRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root }).catch((thrown) => thrown);
    expect(error).toMatchObject({ code: 'metadata-malformed', path });
    writeFileSync(path, readFileSync(join(root, v1Dir, 'b.example-metadata.json'), 'utf8').replaceAll('"vf"', '"x"'));
    await expect(readRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root })).rejects.toThrow(
      `metadata file ${path} has no request vf, only x`,
    );
  });

  it('merges the devices of a file that lists a request twice, as other drivers may write it', async () => {
    const { root } = await container();
    const path = join(root, v1Dir, `${driver}-metadata.json`);
    const device = { driver, pool: 'p', name: 'd' };
    const object = {
      kind: 'DeviceMetadata',
      apiVersion: 'metadata.resource.k8s.io/v1beta1',
      metadata: { ...claim, generation: 1 },
      requests: [
        { name: 'other', devices: [device] },
        { name: 'vf', devices: [device] },
        { name: 'vf', devices: [{ ...device, name: 'e' }] },
      ],
    };
    rmSync(path);
    writeFileSync(path, JSON.stringify(object));
    const { devices } = await readRequestMetadata({ claim: 'fast-net', request: 'vf' }, { root });
    expect(devices.map(({ name }) => name)).toEqual(['d', 'e']);
  });
});

describe('listRequests', () => {
  it("lists each request of a container once, by the claim's name or the pod's name for it", async () => {
    expect(await listRequests({ root: bench.path })).toEqual([]);
    await container({ driver: 'a.example' });
    await container({ driver: 'b.example', layouts: ['kep'], request: 'gpu/small' });
    const { root } = await container({ podClaimName: 'nic' });
    mkdirSync(join(root, 'var/run/dra-device-attributes/empty/vf'), { recursive: true });
    writeFileSync(join(root, 'var/run/dra-device-attributes/file.json'), '');
    const listed = await listRequests({ root });
    expect(listed).toEqual([
      { claim: 'fast-net', request: 'vf' },
      { claim: 'app-nic-x7k2p', request: 'vf' },
      { claim: 'fast-net', request: 'gpu' },
      { podClaim: 'nic', request: 'vf' },
    ]);
    for (const query of listed) expect((await readRequestMetadata(query, { root })).devices).toHaveLength(1);
  });

  it('fails with metadata-io if the root directory cannot be read', async () => {
    const error = await listRequests({ root: 'nul\0' }).catch((thrown: MetadataError) => thrown);
    expect(error).toMatchObject({ code: 'metadata-io' });
  });
});
