import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { buildClaim, buildPod, testDriver } from '../../../test/doubles/objects.ts';
import { Bench, type RunningContainer, retry } from '../bench.ts';
import { containerdSeries } from '../tools.ts';

const path = (claim: string) => `/var/run/dra-device-attributes/${claim}/vf/${testDriver}-metadata.json`;
const noFile = /metadata.*no such file or directory/;

async function generation(container: RunningContainer, claim: string): Promise<number> {
  return JSON.parse((await container.exec('cat', path(claim))).stdout).metadata.generation;
}

describe.each(containerdSeries)('a hook that fails on containerd %s', (version) => {
  let bench: Bench;
  const logger = new RecordingLogger();
  const requestTimeoutMs = 2_000;

  beforeAll(async () => {
    bench = await Bench.start({ version, logger, requestTimeoutMs: requestTimeoutMs });
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

  /** A pod with one VF of its own. */
  async function podWithVf(name: string) {
    await expect.poll(() => bench.api.objects('ResourceSlice')).toHaveLength(1);
    const [slice] = bench.api.objects<{ spec: { devices: { name: string }[] } }>('ResourceSlice');
    const device = slice?.spec.devices[0]?.name ?? '';
    const pod = buildPod(name, { resourceClaims: [{ name: 'nic', resourceClaimName: name }] });
    const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', addresses: ['192.0.2.1/24'] };
    const config = [{ source: 'FromClaim' as const, parameters }];
    bench.api.create(buildClaim(name, { requests: [{ name: 'vf', devices: [device] }], config, pods: [pod] }));
    return pod;
  }

  /** Lets the next hook fail, and only that. */
  function failOnce(): void {
    bench.onStep = (step) => {
      if (step !== 'vf-moved') return;
      bench.onStep = () => undefined;
      throw new Error('planted failure');
    };
  }

  it('(c) reject: the sandbox fails with the reason, and the next one succeeds', async () => {
    await bench.startDriver({ hookFailure: 'reject' });
    const pod = await podWithVf('rejected');
    failOnce();
    await expect(bench.startPod(pod)).rejects.toThrow(/netdra: planted failure/);
    const { containers } = await bench.containerd.cri.call('ListContainers', {});
    expect(containers).toEqual([]);
    const sandbox = await bench.runSandbox(pod);
    const container = await bench.startContainer(sandbox, pod);
    expect(await generation(container, 'rejected')).toBe(1);
    await bench.endPod(pod);
  });

  it('(c) gate: the container is refused until the file is there', async () => {
    await bench.startDriver({ hookFailure: 'gate' });
    const pod = await podWithVf('gated');
    let blocked = true;
    bench.onStep = (step) => {
      if (step === 'vf-moved' && blocked) throw new Error('planted failure');
    };
    const sandbox = await bench.startPod(pod);
    await expect(bench.startContainer(sandbox, pod)).rejects.toThrow(
      /container main cannot have the metadata of claim default\/gated: planted failure/,
    );
    blocked = false;
    bench.onStep = () => undefined;
    await expect.poll(() => logger.messages('info'), { timeout: 10_000 }).toContain('sandbox served after its hook');
    const container = await bench.startContainer(sandbox, pod, 'main');
    expect(await generation(container, 'gated')).toBe(1);
    await bench.endPod(pod);
  });

  it('(c) auto: gates where a refused sandbox leaks, rejects elsewhere', async () => {
    await bench.startDriver({ hookFailure: 'auto' });
    const line = logger.lines.findLast(({ message }) => message === 'connected to the runtime');
    expect(line?.fields).toMatchObject({ runtime: 'containerd', hookFailure: version === '2.1' ? 'gate' : 'reject' });
    const pod = await podWithVf('auto');
    failOnce();
    if (version === '2.1') {
      await bench.startPod(pod);
      await bench.endPod(pod);
    } else {
      await expect(bench.startPod(pod)).rejects.toThrow(/planted failure/);
      await bench.endPod(pod);
    }
  });

  it('(d) a container is refused when the hook never runs', async () => {
    await bench.startDriver({ nriSocket: bench.containerd.nriSocketPath });
    const pod = await podWithVf('unhooked');
    await bench.prepare(pod);
    await bench.stopDriver();
    const sandbox = await bench.runSandbox(pod);
    await expect(bench.startContainer(sandbox, pod)).rejects.toThrow(noFile);
    // Back again, the driver sees the pod at Synchronize and makes up for the hook.
    await bench.startDriver();
    await expect
      .poll(
        async () => {
          const container = await bench.startContainer(sandbox, pod).catch(() => undefined);
          return container && (await generation(container, 'unhooked'));
        },
        { timeout: 15_000, interval: 500 },
      )
      .toBe(1);
    await bench.endPod(pod);
  });

  it.each(['reject', 'gate'] as const)(
    '(e) %s: answers in time when the work takes longer than the runtime allows',
    async (hookFailure) => {
      await bench.startDriver({ hookFailure });
      const pod = await podWithVf(`slow-${hookFailure}`);
      bench.onStep = async (step) => {
        if (step === 'vf-moved') await systemClock.sleep(requestTimeoutMs + 1_500);
      };
      const connections = () => logger.messages().filter((message) => message === 'connected to the runtime').length;
      const before = connections();
      const started = await bench.startPod(pod).then(
        (sandbox) => ({ sandbox }),
        (error: Error) => ({ error }),
      );
      bench.onStep = () => undefined;
      if (hookFailure === 'reject') {
        expect(started).toMatchObject({
          error: expect.objectContaining({ message: expect.stringMatching(/was not served within 1(500|499) ms/) }),
        });
      }
      const sandbox = 'sandbox' in started ? started.sandbox : await retry(() => bench.runSandbox(pod));
      if (hookFailure === 'gate') {
        await expect(bench.startContainer(sandbox, pod)).rejects.toThrow(/slow-gate: .*was not served within/);
      }
      const container = await retry(() => bench.startContainer(sandbox, pod));
      expect(await generation(container, `slow-${hookFailure}`)).toBeGreaterThanOrEqual(1);
      await bench.endPod(pod);
      // Still registered: the next pod is served by its hook.
      const next = await podWithVf(`after-${hookFailure}`);
      const nextSandbox = await bench.startPod(next);
      expect(await generation(await bench.startContainer(nextSandbox, next), `after-${hookFailure}`)).toBe(1);
      await bench.endPod(next);
      expect(connections()).toBe(before);
      expect(bench.containerd.logTail(10_000)).not.toMatch(/plugin "?10-netdra"?.*(timed out|deadline|disconnected)/);
    },
  );
});
