import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/clock.ts';
import { explain } from '../../../src/lib/errors.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { Bench, retry } from '../bench.ts';
import { HeldPlugin } from '../held-plugin.ts';
import { containerdSeries } from '../tools.ts';
import { addVfPod, expectClean, expectTruth, type VfPod } from '../vf-pod.ts';

const netnsDir = '/var/run/netns';

/**
 * Simulates the kubelet's death in RunPodSandbox: the call is cancelled while the driver's hook runs. containerd then
 * removes the path of the network namespace; 2.1 keeps the sandbox's process alive, and with it the namespace.
 */
describe.each(containerdSeries)('a cancelled RunPodSandbox on containerd %s', (version) => {
  let bench: Bench;
  /** Configures addresses of a VF that is already in the pod. */
  let ipam: HeldPlugin;
  /** Moves a VF that is still on the host. */
  let mover: HeldPlugin;

  beforeAll(async () => {
    bench = await Bench.start({ version, logger: new RecordingLogger(), settings: { reconcileIntervalMs: 500 } });
    ipam = new HeldPlugin();
    mover = new HeldPlugin(join(bench.containerd.cniBinDir, 'host-device'));
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
    for (const plugin of [ipam, mover]) plugin[Symbol.dispose]();
  });
  afterEach(async () => {
    for (const plugin of [ipam, mover]) plugin.release();
    await bench.endAllPods();
    await bench.stopDriver();
    await expectClean(bench);
  });

  const startDriver = (plugin: HeldPlugin) =>
    bench.startDriver({ cniBinDirs: [plugin.binDir, bench.containerd.cniBinDir] });
  const netnsPaths = () => (existsSync(netnsDir) ? readdirSync(netnsDir) : []);

  /** Cancels the call while the plugin runs, and releases the plugin when the path of the namespace is gone. */
  async function cancelIn(plugin: HeldPlugin, pod: VfPod): Promise<void> {
    await bench.prepare(pod);
    const before = netnsPaths();
    // On a busy machine the plugin may start so late that the hook answers before the call is cancelled.
    for (let tries = 1; !(await isCancelledIn(plugin, pod)); tries++) {
      expect(tries).toBeLessThan(10);
      plugin.release();
      await bench.endSandboxes(pod);
    }
    await expect.poll(netnsPaths, { timeout: 60_000 }).toEqual(before);
    plugin.release();
  }

  /** @returns whether the call was cancelled before the hook answered, which waits only briefly for the plugin */
  async function isCancelledIn(plugin: HeldPlugin, pod: VfPod): Promise<boolean> {
    const kubelet = new AbortController();
    plugin.hold('ADD');
    const calls = plugin.calls('ADD');
    const outcome = bench.runSandbox(pod, {}, { signal: kubelet.signal }).then(
      () => 'answered',
      (error: unknown) => explain(error),
    );
    while (plugin.calls('ADD') === calls) await systemClock.sleep(5);
    kubelet.abort();
    const result = await outcome;
    expect(result).toMatch(/^answered$|[Cc]ancel/);
    return result !== 'answered';
  }

  const fieldsFor = (how: 'moves' | 'has moved') =>
    how === 'has moved'
      ? { ipam: { type: ipam.type } }
      : { attach: 'cni', cni: { cniVersion: '1.0.0', name: 'moves', type: mover.type, device: 'nsim0v0' } };

  it.each(['moves', 'has moved'] as const)("does not lose the VF that the driver's hook %s", async (how) => {
    const plugin = how === 'moves' ? mover : ipam;
    const name = how.replace(' ', '-');
    await startDriver(plugin);
    const pod = await addVfPod(bench, `cancelled-${name}`, 0, fieldsFor(how));
    await cancelIn(plugin, pod);
    await bench.stopDriver();
    await startDriver(plugin);
    await bench.kubelet.unprepare(pod);
    expect(bench.hostVfs()).toContain('nsim0v0');

    const next = await addVfPod(bench, `next-${name}`, 0);
    const sandbox = await retry(() => bench.startPod(next));
    expect(await expectTruth(bench, sandbox, next)).toBe(1);
  });

  it('does not prevent its pod from getting the VF in its next sandbox', async () => {
    await startDriver(ipam);
    const pod = await addVfPod(bench, 'again', 2, fieldsFor('has moved'));
    await cancelIn(ipam, pod);
    await expectTruth(bench, await retry(() => bench.runSandbox(pod)), pod);
  });
});
