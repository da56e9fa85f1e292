import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { Bench, retry } from '../bench.ts';
import { addVfPod, expectClean, expectTruth, storedClaims } from '../faults/vf-pod.ts';
import { listProcesses } from '../host-state.ts';

const patience = { timeout: 20_000 };

describe('what hangs for ever', () => {
  let bench: Bench;
  let dir: string;
  const logger = new RecordingLogger();
  const cni = { cniVersion: '1.0.0', name: 'stuck', plugins: [{ type: 'stuck' }] };

  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), 'netdra-stuck-'));
    mkdirSync(join(dir, 'bin'));
    bench = await Bench.start({ version: '2.1', logger, requestTimeoutMs: 2_000, settings: { hookFailure: 'reject' } });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
    rmSync(dir, { recursive: true });
  });
  afterEach(async () => {
    bench.onStep = () => undefined;
    await retry(() => bench.endAllPods());
    await bench.stopDriver();
    await expectClean(bench);
  });

  /** A CNI plugin that hangs at these commands; at the others it does nothing, and well. */
  function writePlugin(...hangsAt: string[]): void {
    const path = join(dir, 'bin/stuck');
    const cases = hangsAt.map((command) => `${command}) exec sleep 86400 ;;\n`).join('');
    writeFileSync(path, `#!/bin/sh\ncase $CNI_COMMAND in\n${cases}ADD) echo '{"cniVersion":"1.0.0"}' ;;\nesac\n`);
    chmodSync(path, 0o755);
  }
  const stuckProcesses = () => listProcesses().filter(({ args }) => args.includes('86400') && args[0] === 'sleep');
  const startDriver = () => bench.startDriver({ cniBinDirs: [join(dir, 'bin'), bench.containerd.cniBinDir] });

  it('a CNI plugin in ADD: its hook is answered in time, other pods are served, its pod can end', async () => {
    writePlugin('ADD');
    await startDriver();
    const pod = await addVfPod(bench, 'stuck', 0, { attach: 'cni', cni });
    const other = await addVfPod(bench, 'other', 1);
    // Kept, although the driver rejects: it would take as long in the next sandbox.
    const sandbox = await bench.startPod(pod);
    await expect(bench.startContainer(sandbox, pod)).rejects.toThrow(/stuck: .*was not served within/);
    expect(stuckProcesses()).toHaveLength(1);
    expect(await expectTruth(bench, await bench.startPod(other), other)).toBe(1);
    await bench.endPod(pod);
    await expect.poll(stuckProcesses, patience).toEqual([]);
    expect(storedClaims(bench).map(({ identity }) => identity.name)).toEqual(['other']);
  });

  it('a CNI plugin in DEL: unprepare says so in time, other pods come and go, and it is repeated', async () => {
    writePlugin('DEL');
    await startDriver();
    // The plugin has moved nothing, so that the hook cannot succeed, but it was called.
    const pod = await addVfPod(bench, 'stuck-del', 0, { attach: 'cni', cni });
    await bench.startPod(pod).catch(() => undefined);
    await bench.endSandboxes(pod);
    const unprepare = expect(bench.kubelet.unprepare(pod)).rejects.toThrow(
      /plugin stuck of CNI network stuck failed to DEL/,
    );
    const other = await addVfPod(bench, 'beside', 1);
    expect(await expectTruth(bench, await bench.startPod(other), other)).toBe(1);
    await bench.endPod(other);
    await unprepare;
    writePlugin();
    await bench.endPod(pod);
    expect(stuckProcesses()).toEqual([]);
  });

  it('the API server, for the NetworkAttachmentDefinition of one claim: other claims are prepared meanwhile', async () => {
    writePlugin();
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

  it('a sandbox that is refused again and again is kept in the end, and served when that can be', async () => {
    await startDriver();
    const pod = await addVfPod(bench, 'refused', 0);
    await bench.prepare(pod);
    bench.onStep = (step) => {
      if (step === 'attachment-recorded') throw new Error('planted failure');
    };
    for (let n = 0; n < 3; n++) await expect(bench.runSandbox(pod)).rejects.toThrow(/planted failure/);
    const sandbox = await bench.runSandbox(pod);
    await expect(bench.startContainer(sandbox, pod)).rejects.toThrow(/refused: .*planted failure/);
    bench.onStep = () => undefined;
    expect(await retry(() => expectTruth(bench, sandbox, pod))).toBe(1);
  });

  it('nothing of the runtime is held up: no hook took longer than it may', async () => {
    expect(readFileSync(bench.containerd.logPath, 'utf8')).not.toMatch(/netdra.*(timed out|deadline exceeded)/);
  });
});
