import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createPlugin } from '../../../nri/index.ts';
import { decodedFields } from '../../../src/driver/sandbox/index.ts';
import { decodeStream } from '../../../src/framework/metadata/index.ts';
import type { Settings } from '../../../src/instance/settings.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench, ipLinks, type RunningContainer } from '../bench.ts';
import type { DriverProcess } from '../driver-process.ts';
import { containerdSeries } from '../tools.ts';
import { addVfPod, expectClean, expectTold, expectTruth } from '../vf-pod.ts';

const attributesDir = '/var/run/kubernetes.io/dra-device-attributes';

/** The main use case of netdra and the end-to-end list of KEP-5304, without a cluster. Part of `npm test`. */
describe.each([...containerdSeries])('netdra on containerd %s', (version) => {
  let bench: Bench;
  let driver: DriverProcess | undefined;

  beforeAll(async () => {
    bench = await Bench.start({ version, logger: new RecordingLogger() });
  });
  afterAll(() => bench?.[Symbol.asyncDispose]());
  afterEach(async () => {
    if (driver === undefined) await startDriver();
    await bench.endAllPods();
    await stopDriver();
    await expectClean(bench);
  });

  async function startDriver(settings: Partial<Settings> = {}): Promise<void> {
    driver = await bench.startProcess({ enableDeviceMetadata: true, ...settings });
  }

  async function stopDriver(signal?: NodeJS.Signals): Promise<void> {
    await driver?.stop(signal);
    driver = undefined;
  }

  /** Paths below the folder of metadata in a container. */
  async function filesIn(container: RunningContainer): Promise<string[]> {
    const { stdout } = await container.exec('find', attributesDir, '-type', 'f');
    return stdout.split('\n').filter((line) => line !== '');
  }

  it('gives a container a read-only metadata file of generation 1 with the addresses that CNI assigned', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'fast-net', 0, { mtu: 1400, addresses: ['192.0.2.10/24', '2001:db8::10/64'] });
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    expect(await expectTold(container, sandbox, pod)).toBe(1);
    const [file = ''] = await filesIn(container);
    const { exitCode, stderr } = await container.exec('sh', '-c', `echo x >${file}`);
    expect([exitCode, stderr]).toEqual([1, expect.stringContaining('Read-only file system')]);
    const [device] = decodeStream((await container.exec('cat', file)).stdout).devices;
    expect(device?.networkData?.interfaceName).toBe('net1');
    expect(device?.networkData?.ips).toEqual(['192.0.2.10/24', '2001:db8::10/64']);
    expect(device?.attributes?.mtu).toEqual({ int: 1400 });
  });

  it('mounts into a container only the metadata files of its own requests', async () => {
    await startDriver();
    const own = join(bench.settings.kubeletPluginsDir, testDriver, 'dra-device-metadata/');
    const shown = new Map<string, string[]>();
    await using plugin = createPlugin({
      name: 'reads',
      index: '20',
      socketPath: bench.containerd.nriSocketPath,
      decode: decodedFields([own]),
      handlers: {
        createContainer: (_, { name, mounts }) => void shown.set(name, mounts.map(({ source }) => source).sort()),
      },
    });
    plugin.start();
    await plugin.whenConnected();
    await expect.poll(() => bench.api.objects('ResourceSlice'), { timeout: 20_000 }).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const [first = '', second = ''] = slice!.spec.devices.map(({ name }) => name);
    const pod = buildPod('apart', {
      resourceClaims: [{ name: 'nics', resourceClaimName: 'apart' }],
      containers: [
        { name: 'left', claims: [{ name: 'nics', request: 'left' }] },
        { name: 'right', claims: [{ name: 'nics', request: 'right' }] },
        { name: 'none', claims: [] },
      ],
    });
    const requests = [
      { name: 'left', devices: [first] },
      { name: 'right', devices: [second] },
    ];
    bench.api.create(buildClaim('apart', { requests, config: [], pods: [pod] }));
    const sandbox = await bench.startPod(pod);
    for (const request of ['left', 'right']) {
      const files = await filesIn(await bench.startContainer(sandbox, pod, request));
      expect(files).toEqual([`${attributesDir}/resourceclaims/apart/${request}/${testDriver}-metadata.json`]);
    }
    expect(await filesIn(await bench.startContainer(sandbox, pod, 'none'))).toEqual([]);
    const pathOf = (request: string) =>
      ['metadata-kep.json', 'metadata.json'].map((file) => join(own, 'default_apart', request, file));
    expect(Object.fromEntries(shown)).toEqual({ left: pathOf('left'), right: pathOf('right'), none: [] });
  });

  it('writes metadata files only with --enable-device-metadata, and keeps pods running when the flag changes', async () => {
    await startDriver();
    const early = await addVfPod(bench, 'early', 0);
    const earlySandbox = await bench.startPod(early);
    const earlyContainer = await bench.startContainer(earlySandbox, early);
    await stopDriver();

    await startDriver({ enableDeviceMetadata: false });
    const without = await addVfPod(bench, 'without', 1);
    const sandbox = await bench.startPod(without);
    expect(await filesIn(await bench.startContainer(sandbox, without))).toEqual([]);
    expect(ipLinks(sandbox).map(({ ifname }) => ifname)).toContain('net1');
    expect(await expectTold(earlyContainer, earlySandbox, early)).toBe(1);
    await stopDriver();

    await startDriver();
    const late = await addVfPod(bench, 'late', 2);
    expect(await expectTruth(bench, await bench.startPod(late), late)).toBe(1);
    expect(await expectTold(earlyContainer, earlySandbox, early)).toBeGreaterThanOrEqual(1);
  });

  it('keeps pods running while the driver is killed, and starts waiting pods when it is back', async () => {
    await startDriver();
    const running = await addVfPod(bench, 'running', 0);
    const runningSandbox = await bench.startPod(running);
    const container = await bench.startContainer(runningSandbox, running);
    const prepared = await addVfPod(bench, 'prepared', 1);
    await bench.prepare(prepared);
    await stopDriver('SIGKILL');
    expect(await expectTold(container, runningSandbox, running)).toBe(1);
    await startDriver();
    expect(await expectTruth(bench, await bench.runSandbox(prepared), prepared)).toBe(1);
    expect(await expectTold(container, runningSandbox, running)).toBeGreaterThanOrEqual(1);
  });
});
