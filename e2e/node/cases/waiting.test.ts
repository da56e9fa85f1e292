import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildPod } from '../../../test/doubles/objects.ts';
import { Bench, type RunningContainer } from '../bench.ts';
import { DriverProcess } from '../driver-process.ts';
import { addVfPod, expectClean, expectTold, type VfPod } from '../faults/vf-pod.ts';
import type { Sandbox } from '../pod.ts';
import type { ContainerdSeries } from '../tools.ts';

const vfs = 12;
/** Long enough for a container that is not held back. */
const aMoment = 1_500;

interface Waiting {
  pod: VfPod;
  sandbox: Sandbox;
  started: Promise<RunningContainer>;
}

/** The oldest one; on later ones pods of a real kubelet wait like this, in `e2e/cluster/cases/storm.ts`. */
const version: ContainerdSeries = '1.7';

describe(`containers that wait for a driver that is away, on containerd ${version}`, () => {
  let bench: Bench;
  let driver: DriverProcess | undefined;
  let runs = 0;

  beforeAll(async () => {
    const settings = { simulate: { pfs: 1, vfsPerPf: vfs } };
    bench = await Bench.start({ version, logger: new RecordingLogger(), settings });
  });
  afterAll(() => bench?.[Symbol.asyncDispose]());
  afterEach(async () => {
    await driver?.stop();
    driver = await bench.startProcess();
    await bench.endAllPods();
    await driver.stop();
    driver = undefined;
    await expectClean(bench, vfs);
  });

  async function killDriver(): Promise<void> {
    await driver?.stop('SIGKILL');
    driver = undefined;
  }

  /** Pods that are prepared before the driver dies, and run afterwards. */
  async function preparePods(count: number, fields: Record<string, unknown> = {}): Promise<VfPod[]> {
    driver = await bench.startProcess();
    const run = ++runs;
    const indices = Array.from({ length: count }, (_, index) => index);
    const pods = await Promise.all(indices.map((index) => addVfPod(bench, `pod-${run}-${index}`, index, fields)));
    for (const pod of pods) await bench.prepare(pod);
    await killDriver();
    return pods;
  }

  async function runPod(pod: VfPod): Promise<Waiting> {
    const sandbox = await bench.runSandbox(pod);
    const id = await bench.createContainer(sandbox, pod);
    const started = bench.start(id);
    started.catch(() => undefined);
    return { pod, sandbox, started };
  }

  it.each([4, vfs])('do not delay its return, nor pods that come meanwhile: %i pods', async (count) => {
    const waiting: Waiting[] = [];
    for (const pod of await preparePods(count)) waiting.push(await runPod(pod));
    await systemClock.sleep(aMoment);
    const startedAt = performance.now();
    const seconds = () => Math.round((performance.now() - startedAt) / 100) / 10;
    const times: Record<string, number> = {};
    const back = new DriverProcess(bench.settings);
    driver = back;
    const plain = (async () => {
      while (!back.messages().includes('sandboxes of waiting containers served')) await systemClock.sleep(10);
      times.served = seconds();
      const pod = buildPod(`plain-${count}`);
      await bench.startContainer(await bench.startPod(pod), pod);
      times.plain = seconds();
    })();
    const running = waiting.map(async ({ started, sandbox, pod }) => {
      const container = await started;
      times.running = seconds();
      expect(await expectTold(container, sandbox, pod)).toBe(1);
    });
    while (!back.messages().includes('connected over NRI')) await systemClock.sleep(10);
    times.connected = seconds();
    await Promise.all([plain, ...running]);
    // Without announcements it takes 4 s for each of them.
    const seen = JSON.stringify(times);
    expect(times.connected, seen).toBeLessThan(10);
    expect(times.running, seen).toBeLessThan(15);
    expect(times.plain, seen).toBeLessThan(15);
  });

  it('start while the driver cannot connect over NRI, and it keeps them when it does', async () => {
    const [before, after] = await preparePods(2);
    const first = await runPod(before as VfPod);
    await systemClock.sleep(aMoment);
    const settings = { ...bench.settings, nriSocket: join(bench.dir, 'no.sock') };
    const cutOff = new DriverProcess(settings);
    driver = cutOff;
    const told = async ({ started, sandbox, pod }: Waiting) => expectTold(await started, sandbox, pod);
    expect(await told(first)).toBe(1);
    const second = await runPod(after as VfPod);
    expect(await told(second)).toBe(1);
    expect(cutOff.messages()).not.toContain('connected over NRI');
    await cutOff.stop();
    driver = await bench.startProcess();
    for (const waiting of [first, second]) expect(await told(waiting)).toBe(1);
  });

  it('end when their pod was deleted, also before the driver is connected over NRI', async () => {
    const [pod] = await preparePods(1, { ipam: { type: 'host-local' }, addresses: undefined });
    const { started, pod: deleted } = await runPod(pod as VfPod);
    await systemClock.sleep(aMoment);
    bench.api.edit<VfPod>('Pod', deleted.metadata.name, ({ metadata }) =>
      Object.assign(metadata, { deletionTimestamp: new Date() }),
    );
    // The VF cannot be attached: its claim requests a plugin that does not exist.
    const settings = { ...bench.settings, nriSocket: join(bench.dir, 'no.sock'), cniBinDirs: ['/nowhere'] };
    driver = new DriverProcess(settings);
    await expect(started).rejects.toThrow(/netdra-gate: the sandbox of the container is being stopped/);
  });
});
