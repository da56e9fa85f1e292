import { existsSync, readdirSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench, ipLinks, retry } from '../bench.ts';
import { containerdSeries } from '../tools.ts';

const netnsDir = '/var/run/netns';

/**
 * What the kubelet's death in RunPodSandbox does: its call is cancelled while the driver's hook runs. containerd then
 * removes the path of the network namespace; 2.1 leaves the sandbox's process alive, and with it the namespace.
 */
describe.each(containerdSeries)('a RunPodSandbox that is cancelled on containerd %s', (version) => {
  let bench: Bench;
  const logger = new RecordingLogger();

  beforeAll(async () => {
    bench = await Bench.start({ version, logger, settings: { reconcileIntervalMs: 500 } });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    bench.onStep = () => undefined;
    await bench.endAllPods();
    await bench.stopDriver();
    expect(bench.claimFiles()).toEqual([]);
  });

  const podWithVf = (name: string, device: string) => {
    const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', interfaceName: 'net1' };
    const config = [{ source: 'FromClaim' as const, parameters }];
    bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));
    return pod;
  };

  const netnsPaths = () => (existsSync(netnsDir) ? readdirSync(netnsDir) : []);

  /** Cancels the call when the hook is at a step, and lets the hook go on when the path of the namespace is gone. */
  async function cancelAt(step: 'attachment-recorded' | 'vf-moved', pod: ReturnType<typeof podWithVf>): Promise<void> {
    await bench.prepare(pod);
    const before = netnsPaths();
    const kubelet = new AbortController();
    const { promise: isOver, resolve: goOn } = Promise.withResolvers<void>();
    bench.onStep = async (at) => {
      if (at !== step) return;
      bench.onStep = () => undefined;
      kubelet.abort();
      await isOver;
    };
    await expect(bench.runSandbox(pod, {}, { signal: kubelet.signal })).rejects.toThrow(/[Cc]ancel/);
    await expect.poll(netnsPaths, { timeout: 15_000 }).toEqual(before);
    goOn();
  }

  it.each([
    ['attachment-recorded', 'fe00-00-02-0', 'nsim0v0'],
    ['vf-moved', 'fe00-00-02-1', 'nsim0v1'],
  ] as const)(
    'does not cost the VF that its hook has moved, or moves yet: cancelled at %s',
    async (step, device, vf) => {
      await bench.startDriver();
      const pod = podWithVf(`cancelled-${step}`, device);
      await cancelAt(step, pod);
      await bench.stopDriver();
      await bench.startDriver();
      await bench.kubelet.unprepare(pod);
      expect(bench.hostVfs()).toContain(vf);

      const next = podWithVf(`next-${step}`, device);
      const sandbox = await retry(() => bench.startPod(next));
      expect(ipLinks(sandbox).map(({ ifname }) => ifname)).toContain('net1');
      await bench.startContainer(sandbox, next);
      await bench.endPod(next);
      expect(bench.hostVfs()).toContain(vf);
    },
  );

  it('does not keep its pod from getting the VF in its next sandbox', async () => {
    await bench.startDriver();
    const pod = podWithVf('again', 'fe00-00-02-2');
    await cancelAt('vf-moved', pod);
    const sandbox = await retry(() => bench.runSandbox(pod));
    const container = await retry(() => bench.startContainer(sandbox, pod));
    expect(ipLinks(sandbox).map(({ ifname }) => ifname)).toContain('net1');
    expect((await container.exec('ls', `/var/run/dra-device-attributes/again/vf`)).stdout).toContain(testDriver);
    await bench.endPod(pod);
    expect(bench.hostVfs()).toContain('nsim0v2');
  });
});
