import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { buildPod, testDriver } from '../../../doubles/objects.ts';
import { allocated, fromClass } from './driver-bench.ts';
import { bench, useDriverBench } from './driver-hooks.ts';

useDriverBench();

const resourceName = 'intel.com/nic';
const files = (dir: string) => (existsSync(dir) ? readdirSync(dir).sort() : []);
const infoFiles = () => files(bench.deviceInfoDir);

/** The variables of a container that has these CDI devices; the last of two counts, as the runtime has it. */
function envOf(cdiDeviceIds: string[]): Record<string, string> {
  const specs = files(bench.cdiDir).map((file) => JSON.parse(readFileSync(join(bench.cdiDir, file), 'utf8')));
  const assignments = cdiDeviceIds.flatMap((id) => {
    const spec = specs.find(({ kind, devices }) => `${kind}=${devices[0].name}` === id);
    return (spec.devices[0].containerEdits.env ?? []) as string[];
  });
  return Object.fromEntries(assignments.map((text) => text.split(/=(.*)/s).slice(0, 2)));
}

/** The CDI ids of each device that the driver returns to the kubelet. */
async function prepared(claim: AllocatedClaim): Promise<string[][]> {
  const result = await bench.prepare(claim);
  if (result === undefined || 'error' in result) throw result?.error;
  return result.devices.map(({ cdiDeviceIds }) => cdiDeviceIds);
}

const dialectId = ({ identity }: AllocatedClaim, request: string) =>
  `${testDriver}/dialects=${identity.uid}_${request}`;

describe('a request whose class enables dialects (variables and files of earlier SR-IOV software)', () => {
  it('gets one CDI device with these variables, returned with its first allocated device', async () => {
    const claim = allocated('c', [], {
      requests: [
        { name: 'left', devices: ['dev-1', 'dev-2'] },
        { name: 'right', devices: ['dev-3'] },
        { name: 'plain', devices: ['dev-4'] },
      ],
      config: [
        fromClass({ dialects: { devicePlugin: { resourceName, info: false } } }, ['left']),
        fromClass({ dialects: { devicePlugin: { resourceName: 'intel.com/other', info: false } } }, ['right']),
      ],
    });
    const ids = await prepared(claim);
    expect(ids).toEqual([[dialectId(claim, 'left')], [], [dialectId(claim, 'right')]]);
    expect(ids.map(envOf)).toEqual([
      { PCIDEVICE_INTEL_COM_NIC: '0000:00:00.1,0000:00:00.2' },
      {},
      { PCIDEVICE_INTEL_COM_OTHER: '0000:00:00.3' },
    ]);
  });

  it('gets a CDI device named after the request, not after its subrequest', async () => {
    const claim = allocated('c', [], {
      requests: [{ name: 'nic/fast', devices: ['dev-1'] }],
      config: [fromClass({ dialects: { sriovNetwork: {} } }, ['nic'])],
    });
    expect(await prepared(claim)).toEqual([[dialectId(claim, 'nic')]]);
  });

  it('gets a device-info file on the host for each device, not visible in containers', async () => {
    const config = [fromClass({ dialects: { deviceInfo: { resourceName } } })];
    expect(await prepared(allocated('c', ['dev-1', 'dev-2'], { config }))).toEqual([]);
    expect(infoFiles()).toEqual([1, 2].map((index) => `intel.com-nic-0000:00:00.${index}-device.json`));
    expect(files(bench.cdiDir)).toEqual([]);
  });

  it('gets the same variables and files when prepared again, and loses them with unprepare', async () => {
    const dialects = { devicePlugin: { resourceName }, deviceInfo: { resourceName }, sriovNetwork: {} };
    const claim = allocated('c', ['dev-1'], { config: [fromClass({ dialects })] });
    const ids = await prepared(claim);
    const before = envOf(ids.flat());
    expect(await prepared(claim)).toEqual(ids);
    expect(envOf(ids.flat())).toEqual(before);
    expect([files(bench.cdiDir).length, infoFiles().length]).toEqual([1, 1]);
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect([files(bench.cdiDir), infoFiles()]).toEqual([[], []]);
  });

  it('loses these files with unprepare even if prepare was interrupted', async () => {
    const dialects = { deviceInfo: { resourceName }, sriovNetwork: {} };
    const claim = allocated('cut', ['dev-0'], { config: [fromClass({ dialects })] });
    await prepared(claim);
    const stored = bench.store.claim(claim.identity.uid)!;
    const devices = stored.devices.map(({ access: _, ...device }) => device);
    bench.store.putClaim({ ...stored, devices, state: 'preparing' });
    const [file = ''] = infoFiles();
    writeFileSync(join(bench.deviceInfoDir, `.${file}.tmp`), '{"ty');
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect([files(bench.cdiDir), files(bench.deviceInfoDir)]).toEqual([[], []]);
  });

  it('overwrites existing device-info files, but unprepare keeps files that a device plugin wrote later', async () => {
    const config = [fromClass({ dialects: { deviceInfo: { resourceName } } })];
    const claim = allocated('c', ['dev-1', 'dev-2'], { config });
    const [path, other] = [1, 2].map((index) =>
      join(bench.deviceInfoDir, `intel.com-nic-0000:00:00.${index}-device.json`),
    ) as [string, string];
    mkdirSync(bench.deviceInfoDir);
    writeFileSync(path, 'old', { mode: 0o444 });
    for (let n = 0; n < 2; n++) await prepared(claim);
    expect([statSync(path).mode & 0o777, readFileSync(path, 'utf8')]).toEqual([
      0o444,
      expect.stringContaining('"pci"'),
    ]);
    rmSync(other);
    writeFileSync(other, 'of a device plugin');
    writeFileSync(join(bench.deviceInfoDir, 'more.json'), 'of a device plugin');
    expect(await bench.unprepare(claim)).toBeUndefined();
    expect(infoFiles().sort()).toEqual(['intel.com-nic-0000:00:00.2-device.json', 'more.json']);
  });

  it('is not prepared if its device-info file cannot be written', async () => {
    writeFileSync(bench.deviceInfoDir, 'no directory');
    const config = [fromClass({ dialects: { deviceInfo: { resourceName } } })];
    expect(await bench.prepare(allocated('c', ['dev-1'], { config }))).toMatchObject({
      error: { code: 'metadata-io' },
    });
  });
});

describe('the variable of a dialect for a whole pod', () => {
  const config = [fromClass({ dialects: { sriovNetwork: {} } })];

  it('lists the devices of all claims of the pod in every container, whichever claim is prepared first', async () => {
    const pods = [buildPod('app')];
    const [b, a] = [allocated('b', ['dev-2'], { pods, config }), allocated('a', ['dev-1'], { pods, config })];
    const others = [
      allocated('c', ['dev-3'], { pods }),
      allocated('elsewhere', ['dev-4'], { config, pods: [buildPod('other')] }),
    ];
    for (const claim of others) await prepared(claim);
    const ofB = (await prepared(b)).flat();
    expect(envOf(ofB).SRIOVNETWORK_PCI_ADDRESSES).toBe('0000:00:00.2');
    const ofA = (await prepared(a)).flat();
    for (const ids of [ofA, ofB]) expect(envOf(ids).SRIOVNETWORK_PCI_ADDRESSES).toBe('0000:00:00.1,0000:00:00.2');
    // Each by itself describes its own device.
    expect(envOf(ofB)).toHaveProperty('SRIOVNETWORK_VF_DEVICE_dev_2');
    expect(envOf(ofB)).not.toHaveProperty('SRIOVNETWORK_VF_DEVICE_dev_1');
  });
});

describe('two requests with conflicting values for a variable', () => {
  const named = (name: string) => ({ dialects: { devicePlugin: { resourceName: name, info: false } } });
  const refusal = (message: string) => ({
    error: expect.objectContaining({ code: 'config-invalid', message: expect.stringContaining(message) }),
  });

  it('are rejected within one claim, and nothing is changed', async () => {
    const claim = allocated('nics', [], {
      requests: ['left', 'right'].map((name, index) => ({ name, devices: [`dev-${index}`] })),
      config: [fromClass({ ...named(resourceName), vf: { trust: true } })],
    });
    expect(await bench.prepare(claim)).toMatchObject(
      refusal('dialects: PCIDEVICE_INTEL_COM_NIC: requests nics/left and nics/right give it different values'),
    );
    expect([bench.control.count('apply'), bench.store.claims(), files(bench.cdiDir)]).toEqual([0, [], []]);
  });

  it('are allowed for two containers that use the same extended resource', async () => {
    const requests = [0, 1].map((index) => ({ name: `container-${index}-request-0`, devices: [`dev-${index}`] }));
    const extendedResources = new Map(requests.map(({ name }) => [name, [resourceName]]));
    const pods = [buildPod('app')];
    const claim = { ...allocated('app-extended', [], { pods, requests }), extendedResources };
    // Without a word about it in the class: images that ask for such a resource were made for the device plugin.
    expect((await prepared(claim)).map(envOf)).toMatchObject([
      { PCIDEVICE_INTEL_COM_NIC: '0000:00:00.0' },
      { PCIDEVICE_INTEL_COM_NIC: '0000:00:00.1' },
    ]);
    // A container can have a request of this claim and one of another.
    const other = allocated('other', ['dev-2'], { pods, config: [fromClass(named(resourceName))] });
    expect(await bench.prepare(other)).toMatchObject(
      refusal('requests app-extended/container-0-request-0 and other/vf'),
    );
  });

  it('do not conflict if the class of an extended resource disables variables', async () => {
    const claim = allocated('app-extended', ['dev-1'], { config: [fromClass({ dialects: {} })] });
    const extendedResources = new Map([['vf', [resourceName]]]);
    expect(await prepared({ ...claim, extendedResources })).toEqual([]);
  });

  it('are rejected in two claims of one pod, but allowed in the claims of two pods', async () => {
    const pods = [buildPod('app')];
    const config = [fromClass(named(resourceName))];
    await prepared(allocated('first', ['dev-1'], { pods, config }));
    const second = allocated('second', ['dev-2'], { pods, config });
    expect(await bench.prepare(second)).toMatchObject(refusal('requests first/vf and second/vf'));
    expect(await prepared(allocated('third', ['dev-3'], { config }))).toHaveLength(1);
    expect(
      await prepared(allocated('fourth', ['dev-4'], { pods, config: [fromClass(named('intel.com/b'))] })),
    ).toHaveLength(1);
    await bench.unprepare(allocated('first', []));
  });

  it('are rejected in one of two claims of a pod that are prepared concurrently', async () => {
    const pods = [buildPod('app')];
    const config = [fromClass({ ...named(resourceName), vf: { trust: true } })];
    const claims = ['a', 'b'].map((name, index) => allocated(name, [`dev-${index}`], { pods, config }));
    const results = await Promise.all(claims.map((claim) => bench.prepare(claim)));
    expect(results.filter((result) => result !== undefined && 'error' in result)).toMatchObject([
      refusal('give it different values'),
    ]);
    expect(bench.store.claims()).toHaveLength(1);
  });

  it('are rejected if their classes name different NetworkAttachmentDefinitions', async () => {
    const of = (networkAttachmentDefinition: string, request: string) =>
      fromClass({ dialects: { sriovNetwork: { networkAttachmentDefinition } } }, [request]);
    const requests = ['a', 'b'].map((name, index) => ({ name, devices: [`dev-${index}`] }));
    const claim = allocated('nics', [], { requests, config: [of('fast', 'a'), of('slow', 'b')] });
    expect(await bench.prepare(claim)).toMatchObject(
      refusal('SRIOVNETWORK_NET_ATTACH_DEF_NAME: requests nics/a and nics/b'),
    );
    const alike = allocated('nics', [], { requests, config: [of('fast', 'a'), of('fast', 'b')] });
    expect(await prepared(alike)).toHaveLength(2);
  });
});
