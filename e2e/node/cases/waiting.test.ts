import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildPod } from '../../../test/doubles/objects.ts';
import { Bench, type RunningContainer } from '../bench.ts';
import { DriverProcess } from '../driver-process.ts';
import { addVfPod, expectClean, expectTold, type VfPod } from '../faults/vf-pod.ts';
import type { Sandbox } from '../pod.ts';
import { containerdSeries } from '../tools.ts';

const vfs = 12;

interface Waiting {
  pod: VfPod;
  sandbox: Sandbox;
  started: Promise<RunningContainer>;
}

describe.each(containerdSeries)('containers that wait for a driver that is away, on containerd %s', (version) => {
  let bench: Bench;
  let driver: DriverProcess | undefined;

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

  /** Pods that are prepared before the driver dies, and run after it. */
  async function preparePods(count: number): Promise<VfPod[]> {
    driver = await bench.startProcess();
    const pods = await Promise.all(
      Array.from({ length: count }, (_, index) => addVfPod(bench, `pod-${count}-${index}`, index)),
    );
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
    await systemClock.sleep(1_500);
    const startedAt = performance.now();
    const seconds = () => Math.round((performance.now() - startedAt) / 100) / 10;
    const times: Record<string, number> = {};
    const back = new DriverProcess(bench.settings);
    driver = back;
    const plain = (async () => {
      while (!back.messages().includes('connected to the runtime')) await systemClock.sleep(10);
      times.configured = seconds();
      const pod = buildPod('plain');
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
    console.log('TIMES', version, count, JSON.stringify(times));
  });
});
