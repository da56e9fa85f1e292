import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { Bench, retry } from '../bench.ts';
import type { DriverProcess } from '../driver-process.ts';
import { addVfPod, expectClean, expectTruth, type VfPod } from '../faults/vf-pod.ts';
import type { Sandbox } from '../pod.ts';

const reconcileIntervalMs = 1_000;

/** What is restarted; `all` is each of them at once. */
const parts = ['driver', 'containerd', 'kubelet', 'API server', 'all'] as const;
type Part = (typeof parts)[number];

describe('restarts on containerd 2.1', () => {
  const version = '2.1';
  let bench: Bench;
  let drivers: DriverProcess[] = [];

  beforeAll(async () => {
    bench = await Bench.start({ version, logger: new RecordingLogger(), settings: { reconcileIntervalMs } });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await retry(() => bench.endAllPods());
    for (const driver of drivers) await driver.stop();
    drivers = [];
    await expectClean(bench);
  });

  /** @param podUid for an instance beside another one */
  async function startDriver(podUid?: string): Promise<DriverProcess> {
    const driver = await bench.startProcess({ podUid });
    drivers.push(driver);
    return driver;
  }

  async function restart(part: Part): Promise<void> {
    if (part === 'containerd') await bench.containerd.restart('SIGKILL');
    else if (part === 'kubelet') await bench.kubelet.restart();
    else if (part === 'API server') await pauseApi();
    else if (part === 'driver') {
      await drivers.pop()?.stop('SIGKILL');
      await startDriver();
    } else await Promise.all(parts.filter((each) => each !== 'all').map(restart));
  }

  /** All connections cut, and nobody there for a moment. */
  async function pauseApi(): Promise<void> {
    using _ = bench.api.failNext(/./, 503, { times: Number.POSITIVE_INFINITY });
    bench.api.dropConnections();
    await systemClock.sleep(300);
  }

  /** The step, with the restart somewhere in it, and then as often as the kubelet would try. */
  async function disturbed<T>(part: Part, delayMs: number, step: () => Promise<T>): Promise<T> {
    const first = step().catch(() => undefined);
    await systemClock.sleep(delayMs);
    const [result] = await Promise.all([first, restart(part)]);
    return result ?? (await retry(step));
  }

  it.each(parts)('of the %s during prepare, hook, stop and unprepare: nothing is lost', async (part) => {
    await startDriver();
    for (const [round, delayMs] of [0, 30].entries()) {
      const pod = await addVfPod(bench, `restart-${parts.indexOf(part)}-${round}`, round);
      await disturbed(part, delayMs, async () => {
        await bench.prepare(pod);
        return true;
      });
      // What a kubelet was told while it ended, the next one does not know.
      await retry(() => bench.prepare(pod));
      const sandbox = await disturbed(part, delayMs, () => bench.runSandbox(pod));
      await retry(() => expectTruth(bench, sandbox, pod)).catch(async () => {
        // One of which no answer came is not the pod's: the kubelet ends it and makes another one.
        await retry(() => bench.endSandboxes(pod));
        await retry(() => startIn(pod));
      });
      await disturbed(part, delayMs, () => bench.endSandboxes(pod));
      await disturbed(part, delayMs, async () => {
        await bench.endPod(pod);
        return true;
      });
      await retry(() => bench.endPod(pod));
      bench.api.delete('ResourceClaim', pod.metadata.name);
      await expectClean(bench);
    }
  });

  async function startIn(pod: VfPod): Promise<Sandbox> {
    const sandbox = await bench.runSandbox(pod);
    await expectTruth(bench, sandbox, pod);
    return sandbox;
  }

  it('a rolling update: two instances serve the same pods, and either may go at any time', async () => {
    const [oldUid, newUid] = [randomUUID(), randomUUID()];
    const old = await startDriver(oldUid);
    const before = await addVfPod(bench, 'before', 0);
    const sandbox = await retry(async () => {
      await bench.prepare(before);
      return await startIn(before);
    });
    await startDriver(newUid);
    await expect.poll(() => bench.kubelet.plugins(testDriver).length, { timeout: 20_000 }).toBe(2);
    // Both get every event of the runtime; the kubelet talks to the new one.
    const during = await Promise.all([1, 2, 3].map((index) => addVfPod(bench, `during-${index}`, index)));
    const sandboxes: Sandbox[] = [];
    for (const pod of during) {
      await bench.prepare(pod);
      const made = await bench.runSandbox(pod);
      sandboxes.push(made);
      expect(await expectTruth(bench, made, pod)).toBe(1);
    }
    // Several rounds of both.
    await systemClock.sleep(2 * reconcileIntervalMs + 500);
    for (const [index, pod] of during.entries()) expect(await expectTruth(bench, sandboxes[index]!, pod)).toBe(1);
    await bench.endPod(during[0]!);
    expect(await old.stop('SIGTERM')).toBe(0);
    await expect.poll(() => bench.kubelet.plugins(testDriver).length, { timeout: 20_000 }).toBe(1);
    expect(await expectTruth(bench, sandbox, before)).toBe(1);
    await bench.endPod(during[1]!);
    const after = await addVfPod(bench, 'after', 4);
    await bench.prepare(after);
    expect(await startIn(after).then(({ id }) => id)).not.toBe('');
    for (const pod of [before, during[2]!, after]) await bench.endPod(pod);
    await expectClean(bench);
  });
});
