import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../../src/framework/resourceslice/index.ts';
import type { Settings } from '../../../src/instance/settings.ts';
import { systemClock } from '../../../src/lib/clock.ts';
import { pciAddressForLibvirt } from '../../../test/doubles/kubevirt.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { Bench, ipLinks, type RunningContainer, retry } from '../bench.ts';
import { builtDriver } from '../built-driver.ts';
import { DriverProcess } from '../driver-process.ts';
import { HeldPlugin } from '../held-plugin.ts';
import { launcherFiles } from '../launcher-files.ts';
import type { Sandbox } from '../pod.ts';
import type { ContainerdSeries } from '../tools.ts';
import { addVfPod, expectClean, expectTold, expectTruth, type VfPod } from '../vf-pod.ts';

/** Long enough for a container that is not held back. */
const aMoment = 1_500;

/** The oldest one; on later ones pods of a real kubelet wait like this, in `e2e/cluster/cases/storm.ts`. */
const version: ContainerdSeries = '1.7';

describe(`containers whose VF is late, on containerd ${version}`, () => {
  let bench: Bench;
  let plugin: HeldPlugin;
  let driver: DriverProcess | undefined;
  const ipam = () => ({ ipam: { type: plugin.type }, addresses: undefined });

  beforeAll(async () => {
    plugin = new HeldPlugin();
    bench = await Bench.start({ version, logger: new RecordingLogger() });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
    plugin[Symbol.dispose]();
  });
  afterEach(async () => {
    plugin.release();
    if (driver === undefined) await startDriver();
    await bench.endAllPods();
    await driver?.stop();
    driver = undefined;
    await expectClean(bench);
  });

  async function startDriver(settings: Partial<Settings> = {}): Promise<void> {
    driver = await bench.startProcess({ cniBinDirs: [plugin.binDir, bench.containerd.cniBinDir], ...settings });
  }

  async function killDriver(): Promise<void> {
    await driver?.stop('SIGKILL');
    driver = undefined;
  }

  /** A container that is started exactly once, as for a pod with `restartPolicy: Never`. */
  class Starting {
    readonly id: string;
    readonly started: Promise<RunningContainer>;
    isOver = false;

    constructor(id: string) {
      this.id = id;
      this.started = bench.start(id).finally(() => {
        this.isOver = true;
      });
      this.started.catch(() => undefined);
    }

    /** The container is created, but not started. */
    async expectWaiting(): Promise<void> {
      await systemClock.sleep(aMoment);
      expect(this.isOver).toBe(false);
      const { status } = await bench.containerd.cri.call('ContainerStatus', { containerId: this.id });
      expect(status.state).toBe('CONTAINER_CREATED');
    }
  }
  const create = async (sandbox: Sandbox, pod: VfPod) => new Starting(await bench.createContainer(sandbox, pod));

  it('wait for a slow IPAM plugin without failing their sandbox or delaying other pods', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'slow', 0, ipam());
    plugin.hold('ADD');
    const sandbox = await bench.startPod(pod);
    const starting = await create(sandbox, pod);
    await starting.expectWaiting();
    const other = await addVfPod(bench, 'other', 1);
    expect(await expectTruth(bench, await bench.startPod(other), other)).toBe(1);
    expect(starting.isOver).toBe(false);
    plugin.release();
    const container = await starting.started;
    // KubeVirt looks only once.
    const claims = [{ name: 'nic', resourceClaimName: 'slow' }];
    const request = { claimName: 'nic', requestName: 'vf' };
    const pciAddress = await pciAddressForLibvirt(launcherFiles(container), claims, request);
    expect(await expectTold(container, sandbox, pod)).toBe(1);
    const [slice] = bench.api.objects<{ spec: { devices: Device[] } }>('ResourceSlice');
    expect(pciAddress).toBe(slice?.spec.devices[0]?.attributes?.pciAddress?.string);
  });

  it('restart while the driver is dead if their sandbox already had its VFs', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'restarted', 0);
    const sandbox = await bench.startPod(pod);
    const first = await bench.startContainer(sandbox, pod);
    await killDriver();
    await bench.containerd.cri.call('StopContainer', { containerId: first.id, timeout: 0 });
    const startedAt = performance.now();
    expect(await expectTruth(bench, sandbox, pod)).toBe(1);
    // A container that waited at the gate would do so for 100 s.
    expect(performance.now() - startedAt).toBeLessThan(50_000);
  });

  it('do not start with the file of an earlier sandbox while the driver is dead', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'stale', 0);
    const first = await bench.startPod(pod);
    expect(await expectTruth(bench, first, pod)).toBe(1);
    await killDriver();
    await bench.endSandboxes(pod);
    const sandbox = await bench.runSandbox(pod);
    const starting = await create(sandbox, pod);
    await starting.expectWaiting();
    await startDriver();
    expect(await expectTold(await starting.started, sandbox, pod)).toBeGreaterThan(1);
  });

  it('wait, with no metadata file mounted, if metadata is off', async () => {
    const settings = { enableDeviceMetadata: false };
    await startDriver(settings);
    const pod = await addVfPod(bench, 'no-file', 0, ipam());
    plugin.hold('ADD');
    const sandbox = await bench.startPod(pod);
    const starting = await create(sandbox, pod);
    await starting.expectWaiting();
    await killDriver();
    await starting.expectWaiting();
    plugin.release();
    await startDriver(settings);
    await starting.started;
    expect(ipLinks(sandbox).map(({ ifname }) => ifname)).toContain('net1');
  });

  it('are rejected with the reason while their VF cannot be attached, and start once it can', async () => {
    await startDriver();
    const onHost = await addVfPod(bench, 'on-host', 0);
    const hostSandbox = await bench.startPod(onHost, { hostNetwork: true });
    await expect(bench.createContainer(hostSandbox, onHost)).rejects.toThrow(
      /container main cannot start with claim default\/on-host: pod default\/on-host uses the host's network/,
    );
    const pod = await addVfPod(bench, 'planted', 1, ipam());
    plugin.fail('ADD');
    const sandbox = await bench.startPod(pod);
    const refused = () =>
      bench.createContainer(sandbox, pod).then(
        () => '',
        (error: Error) => error.message,
      );
    await expect.poll(refused, { timeout: 20_000 }).toMatch(/claim default\/planted: .*planted failure/);
    const { containers } = await bench.containerd.cri.call('ListContainers', {});
    plugin.release();
    await expect.poll(refused, { timeout: 20_000, interval: 500 }).toBe('');
    for (const { id } of containers) await bench.containerd.cri.call('RemoveContainer', { containerId: id });
    const starting = await create(sandbox, pod);
    expect(await expectTold(await starting.started, sandbox, pod)).toBe(1);
  });

  it('stop waiting as soon as their pod is deleted', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'deleted', 0, ipam());
    plugin.hold('ADD');
    const starting = await create(await bench.startPod(pod), pod);
    await starting.expectWaiting();
    const deletedAt = performance.now();
    bench.api.edit<VfPod>('Pod', 'deleted', ({ metadata }) =>
      Object.assign(metadata, { deletionTimestamp: new Date() }),
    );
    // Until then the kubelet takes no other action for the pod.
    await expect(starting.started).rejects.toThrow(/netdra-gate: the sandbox of the container is being stopped/);
    await bench.endSandboxes(pod);
    expect(performance.now() - deletedAt).toBeLessThan(50_000);
  });

  it('start while the driver cannot connect to NRI, and keep running when it connects', async () => {
    await startDriver();
    const pods = await Promise.all([0, 1].map((index) => addVfPod(bench, `cut-off-${index}`, index)));
    for (const pod of pods) await bench.prepare(pod);
    await killDriver();
    const waiting: { pod: VfPod; sandbox: Sandbox; starting: Starting }[] = [];
    const add = async (pod: VfPod) => {
      const sandbox = await bench.runSandbox(pod);
      waiting.push({ pod, sandbox, starting: await create(sandbox, pod) });
    };
    const expectServed = async () => {
      for (const { pod, sandbox, starting } of waiting) {
        expect(await expectTold(await starting.started, sandbox, pod)).toBe(1);
      }
    };
    await add(pods[0]!);
    await systemClock.sleep(aMoment);
    const cutOff = new DriverProcess({ ...bench.settings, nriSocket: join(bench.dir, 'no.sock') }, await builtDriver());
    driver = cutOff;
    await expectServed();
    await add(pods[1]!);
    await expectServed();
    expect(cutOff.messages()).not.toContain('connected over NRI');
    await cutOff.stop();
    await startDriver();
    await expectServed();
  });

  it("delay the deletion of their pod while the driver is dead, but no longer than the gate's timeout", async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'ended', 0, ipam());
    await bench.prepare(pod);
    shortenDeadline(bench, 5);
    plugin.hold('ADD');
    const sandbox = await bench.runSandbox(pod);
    const startedAt = performance.now();
    const starting = await create(sandbox, pod);
    // Before that the runtime has not begun to create the container, and fails for the reason that its pod has ended.
    const claimDir = join(bench.settings.kubeletPluginsDir, testDriver, 'dra-device-metadata/default_ended');
    const isAnnounced = () => readdirSync(claimDir).some((name) => name.startsWith('waiting.'));
    await expect.poll(() => isAnnounced() || starting.isOver).toBe(true);
    await killDriver();
    // The pod's shim handles one request at a time, and is creating a container now.
    // Like the kubelet, which tries again while the start of the container has not quite failed.
    await retry(() => bench.endSandboxes(pod));
    expect(performance.now() - startedAt).toBeLessThan(50_000);
    await expect(starting.started).rejects.toThrow(/netdra-gate: the devices of the claim were not ready in time/);
  });

  it('fail with --start-gate=file while their metadata file is missing, and start on a retry', async () => {
    await startDriver({ startGate: 'file' });
    const pod = await addVfPod(bench, 'by-file', 0, ipam());
    plugin.hold('ADD');
    const sandbox = await bench.startPod(pod);
    await expect(bench.createContainer(sandbox, pod)).rejects.toThrow(/its devices are not in this sandbox yet/);
    await killDriver();
    await expect(bench.startContainer(sandbox, pod)).rejects.toThrow(/metadata.*no such file or directory/);
    plugin.release();
    await startDriver({ startGate: 'file' });
    expect(await retry(() => expectTruth(bench, sandbox, pod))).toBe(1);
  });

  it('caused neither a rejected sandbox nor an NRI timeout in the tests above', () => {
    const log = bench.containerd.logTail(Number.POSITIVE_INFINITY);
    expect(log).not.toMatch(/RunPodSandbox for .* failed/);
    expect(log).not.toMatch(/netdra.*(timed out|deadline exceeded)/);
  });
});

/** Replaces the deadline in the start gate's CDI specs, which would take too long for a test. */
function shortenDeadline({ settings }: Bench, seconds: number): void {
  for (const name of readdirSync(settings.cdiDir)) {
    const path = join(settings.cdiDir, name);
    writeFileSync(path, readFileSync(path, 'utf8').replace(/("--timeout",\s*)"\d+"/, `$1"${seconds}"`));
  }
}
