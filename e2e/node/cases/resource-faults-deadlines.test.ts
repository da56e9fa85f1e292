import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { Bench, retry } from '../bench.ts';
import { addVfPod, expectClean, expectTruth, storedClaims } from '../faults/vf-pod.ts';
import { HeldPlugin } from '../held-plugin.ts';

const patience = { timeout: 20_000 };

describe('what hangs for ever', () => {
  let bench: Bench;
  let plugin: HeldPlugin;
  const ipam = () => ({ ipam: { type: plugin.type } });

  beforeAll(async () => {
    plugin = new HeldPlugin();
    const settings = { reconcileIntervalMs: 500 };
    bench = await Bench.start({ version: '2.1', logger: new RecordingLogger(), requestTimeoutMs: 2_000, settings });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
    plugin[Symbol.dispose]();
  });
  afterEach(async () => {
    plugin.release();
    await retry(() => bench.endAllPods());
    await bench.stopDriver();
    await expectClean(bench);
  });

  const startDriver = () => bench.startDriver({ cniBinDirs: [plugin.binDir, bench.containerd.cniBinDir] });
  /** The driver's records of plugin ADDs without a DEL. */
  const cached = () => {
    const dir = join(bench.settings.kubeletPluginsDir, testDriver, 'cni');
    return existsSync(dir) ? readdirSync(dir) : [];
  };

  it('a CNI plugin in ADD: its hook is answered in time, other pods are served, its pod can end', async () => {
    plugin.hold('ADD');
    await startDriver();
    const pod = await addVfPod(bench, 'stuck', 0, ipam());
    const other = await addVfPod(bench, 'other', 1);
    await bench.startPod(pod);
    await expect.poll(() => plugin.running()).toBe(1);
    expect(await expectTruth(bench, await bench.startPod(other), other)).toBe(1);
    await bench.endPod(pod);
    await expect.poll(() => plugin.running(), patience).toBe(0);
    expect(storedClaims(bench).map(({ identity }) => identity.name)).toEqual(['other']);
  });

  it('a CNI plugin in DEL: the VF comes back without it, other pods come and go, and it is repeated', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'stuck-del', 0, ipam());
    await expectTruth(bench, await bench.startPod(pod), pod);
    plugin.hold('DEL');
    await bench.endSandboxes(pod);
    const unprepared = bench.kubelet.unprepare(pod);
    const other = await addVfPod(bench, 'beside', 1);
    expect(await expectTruth(bench, await bench.startPod(other), other)).toBe(1);
    await bench.endPod(other);
    await unprepared;
    await expectClean(bench);
    expect(cached()).not.toEqual([]);
    plugin.release();
    await expect.poll(cached, { timeout: 60_000 }).toEqual([]);
    expect(plugin.running()).toBe(0);
  });

  it('the API server, for the NetworkAttachmentDefinition of one claim: other claims are prepared meanwhile', async () => {
    await startDriver();
    const networkAttachmentDefinition = { name: 'slow' };
    const pod = await addVfPod(bench, 'waits', 0, { attach: 'cni', networkAttachmentDefinition });
    const other = await addVfPod(bench, 'goes-on', 1);
    const hanging = bench.api.hang('/network-attachment-definitions/');
    const prepare = bench.prepare(pod).catch((error: Error) => error.message);
    await expect.poll(() => bench.api.requests('/network-attachment-definitions/')).toHaveLength(1);
    expect(await expectTruth(bench, await bench.startPod(other), other)).toBe(1);
    await bench.endPod(other);
    hanging[Symbol.dispose]();
    expect(await prepare).toMatch(/NetworkAttachmentDefinition default\/slow does not exist/);
  });

  it('the API server as a whole: what is prepared is served, ended and given back without it', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'alone', 0);
    await bench.prepare(pod);
    using _hanging = bench.api.hang(/./);
    const sandbox = await bench.runSandbox(pod);
    expect(await expectTruth(bench, sandbox, pod)).toBe(1);
    await bench.endPod(pod);
    await expectClean(bench);
  });

  it('nothing of the runtime is held up: no hook took longer than it may', async () => {
    expect(readFileSync(bench.containerd.logPath, 'utf8')).not.toMatch(/netdra.*(timed out|deadline exceeded)/);
  });
});
