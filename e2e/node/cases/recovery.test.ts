import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/clock.ts';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { testDriver } from '../../../test/doubles/objects.ts';
import { Bench, retry } from '../bench.ts';
import { addVfPod, changeStore, expectClean, expectTold, expectTruth, isTold, storedClaims } from '../faults/vf-pod.ts';
import type { Sandbox } from '../pod.ts';
import type { ContainerdSeries } from '../tools.ts';

const reconcileIntervalMs = 300;
/** Longer than several rounds, to check that something does not happen. */
const severalRoundsMs = 1_500;
const patience = { timeout: 15_000 };

/** The oldest one; later ones are covered by `e2e/cluster/cases/faults.ts`. */
const version: ContainerdSeries = '1.7';

describe(`what the driver makes up for, on containerd ${version}`, () => {
  let bench: Bench;
  const logger = new RecordingLogger();
  const dir = mkdtempSync(join(tmpdir(), 'netdra-boot-'));
  const bootIdPath = join(dir, 'boot_id');

  beforeAll(async () => {
    writeFileSync(bootIdPath, 'boot-1');
    bench = await Bench.start({ version, logger, settings: { reconcileIntervalMs, bootIdPath } });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
    rmSync(dir, { recursive: true });
  });
  afterEach(async () => {
    await bench.endAllPods();
    await bench.stopDriver();
    await expectClean(bench);
  });

  it('(b) a sandbox that ended while the driver was away: the VF comes back, its file is withdrawn', async () => {
    await bench.startDriver();
    const [pod, other] = [await addVfPod(bench, 'ended', 0), await addVfPod(bench, 'alive', 1)];
    const sandbox = await bench.startPod(pod);
    expect(await expectTruth(bench, sandbox, pod)).toBe(1);
    const otherSandbox = await bench.startPod(other);
    await bench.stopDriver();
    await bench.endSandboxes(pod);
    // The metadata has not been withdrawn yet.
    expect(isTold(bench, pod)).toBe(true);
    await bench.startDriver();
    await expect.poll(() => isTold(bench, pod), patience).toBe(false);
    await expect.poll(() => bench.hostVfs().length, patience).toBe(7);
    // The claim still belongs to the pod: its next sandbox gets the VF again.
    expect(await expectTruth(bench, await bench.runSandbox(pod), pod)).toBe(2);
    // The other pod is unchanged.
    expect(await expectTruth(bench, otherSandbox, other)).toBe(1);
  });

  it('(b) what is left of an earlier sandbox does not take the VF out of the one that the pod lives in', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'twice', 0);
    // As left by a containerd that is killed while it creates the first one.
    const left = await bench.startPod(pod);
    const sandbox = await bench.runSandbox(pod);
    const generation = await expectTruth(bench, sandbox, pod);
    const listed = async () => {
      const { items } = await bench.containerd.cri.call('ListPodSandbox', {});
      return items.map(({ id }) => id);
    };
    for (const restart of [
      () => bench.containerd.restart(),
      () => bench.stopDriver().then(() => bench.startDriver()),
    ]) {
      await restart();
      await systemClock.sleep(severalRoundsMs);
      expect(await listed()).toEqual(expect.arrayContaining([left.id, sandbox.id]));
      expect(await retry(() => expectTruth(bench, sandbox, pod))).toBe(generation);
    }
  });

  it('(b) of two sandboxes whose hooks were missed, the VF goes to the one that the kubelet fills', async () => {
    await bench.startDriver();
    const pods = await Promise.all([0, 1].map((index) => addVfPod(bench, `missed-${index}`, index)));
    for (const pod of pods) await bench.prepare(pod);
    await bench.stopDriver();
    const sandboxes = [];
    for (const pod of pods) sandboxes.push([await bench.runSandbox(pod), await bench.runSandbox(pod)] as const);
    await bench.startDriver();
    await systemClock.sleep(severalRoundsMs);
    // The first of one pod and the second of the other: one of them is not the one that the driver served first.
    const [[first], [, second]] = sandboxes as [[Sandbox, Sandbox], [Sandbox, Sandbox]];
    await retry(() => expectTruth(bench, first, pods[0]!));
    await retry(() => expectTruth(bench, second, pods[1]!));
    await systemClock.sleep(severalRoundsMs);
    await expectTruth(bench, first, pods[0]!);
    await expectTruth(bench, second, pods[1]!);
  });

  it('(b) a sandbox whose end a restarted containerd does not tell: the VF comes back all the same', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'untold', 0);
    await expectTruth(bench, await bench.startPod(pod), pod);
    await bench.containerd.restart();
    await bench.endSandboxes(pod);
    await expect.poll(() => isTold(bench, pod), patience).toBe(false);
    await expect.poll(() => storedClaims(bench)[0]?.devices[0]?.attachment, patience).toBeUndefined();
    expect(bench.hostVfs()).toHaveLength(8);
  });

  it('(c) a claim that the API server has no more is unprepared, but not while its pod is alive', async () => {
    await bench.startDriver();
    const [pod, alive] = [await addVfPod(bench, 'forgotten', 0), await addVfPod(bench, 'running', 1)];
    await bench.prepare(pod);
    const sandbox = await bench.startPod(alive);
    // A sandbox without containers may be left of a deleted pod, so the API server decides.
    expect(await expectTruth(bench, sandbox, alive)).toBe(1);
    for (const name of ['forgotten', 'running']) bench.api.delete('ResourceClaim', name);
    await expect.poll(() => storedClaims(bench).map(({ identity }) => identity.name), patience).toEqual(['running']);
    await systemClock.sleep(severalRoundsMs);
    expect(await expectTruth(bench, sandbox, alive)).toBe(1);
    expect(bench.hostVfs()).toHaveLength(7);
    // Once the sandbox has ended, the rest does not need the kubelet.
    await bench.endSandboxes(alive);
    await expect.poll(() => storedClaims(bench), patience).toEqual([]);
    await expect.poll(() => bench.claimFiles(), patience).toEqual([]);
  });

  it('(c) an API server that fails, hangs or is not there takes nothing away', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'kept', 0);
    await bench.prepare(pod);
    bench.api.delete('ResourceClaim', 'kept');
    using _failing = bench.api.failNext('GET /resourceclaims/kept', 503, { times: 1_000 });
    await systemClock.sleep(severalRoundsMs);
    expect(bench.api.requests('GET /resourceclaims/kept').length).toBeGreaterThan(1);
    expect(storedClaims(bench)).toHaveLength(1);
    expect(bench.claimFiles()).not.toEqual([]);
  });

  it('(c) a claim whose preparing was cut short, and never repeated, is unprepared when it is gone', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'cut-short', 0);
    await bench.prepare(pod);
    await bench.stopDriver();
    changeStore(bench, "UPDATE claims SET state = 'preparing'");
    bench.api.delete('ResourceClaim', 'cut-short');
    await bench.startDriver();
    await expect.poll(() => storedClaims(bench), patience).toEqual([]);
  });

  it('(a) a pod whose hook came while its claim was not prepared is served afterwards', async () => {
    // The interval ensures that no reconciliation runs before the container's first attempt, even on a busy machine.
    await bench.startDriver({ reconcileIntervalMs: 5_000 });
    const pod = await addVfPod(bench, 'early', 0);
    await bench.prepare(pod);
    changeStore(bench, "UPDATE claims SET state = 'preparing'");
    const sandbox = await bench.runSandbox(pod);
    await expect(bench.startContainer(sandbox, pod)).rejects.toThrow('its devices are not prepared yet for this pod');
    // After a restart the kubelet prepares again; without a restart, reconciliation prepares the claim.
    const container = await retry(() => bench.startContainer(sandbox, pod));
    expect(await expectTold(container, sandbox, pod)).toBe(1);
  });

  it('(d) what unprepared claims have left of files and specs goes, that of others stays', async () => {
    await bench.startDriver();
    const dialects = { deviceInfo: { resourceName: 'example.com/nic' }, sriovNetwork: {} };
    const [pod, alive] = [
      await addVfPod(bench, 'lost-row', 0, { dialects }),
      await addVfPod(bench, 'with-row', 1, { dialects }),
    ];
    await bench.prepare(pod);
    const sandbox = await bench.startPod(alive);
    const infoFiles = () => readdirSync(bench.settings.deviceInfoDir ?? '').length;
    expect(infoFiles()).toBe(2);
    changeStore(bench, "DELETE FROM claims WHERE name = 'lost-row'");
    const foreign = join(bench.settings.cdiDir, 'other.example.com_metadata_uid_vf.json');
    writeFileSync(foreign, '{"cdiVersion":"0.5.0","kind":"other.example.com/metadata","devices":[]}');
    const left = () => bench.claimFiles().filter((file) => /lost-row/.test(file));
    const specs = () => readdirSync(bench.settings.cdiDir).length;
    await expect.poll(left, patience).toEqual([]);
    // The specs for its metadata and its variables, and the foreign one.
    await expect.poll(specs, patience).toBe(3);
    await expect.poll(infoFiles, patience).toBe(1);
    rmSync(foreign);
    expect(await expectTruth(bench, sandbox, alive)).toBe(1);
  });

  it('(d) the record of a running pod that is damaged or gone is written anew, with the next generation', async () => {
    await bench.startDriver();
    const pod = await addVfPod(bench, 'damaged', 0);
    const sandbox = await bench.startPod(pod);
    const container = await bench.startContainer(sandbox, pod);
    expect(await expectTold(container, sandbox, pod)).toBe(1);
    const claimDir = join(bench.settings.kubeletPluginsDir, testDriver, 'dra-device-metadata', 'default_damaged');
    const record = join(claimDir, 'claim.json');
    for (const [index, damage] of [() => writeFileSync(record, '{"schema":1,'), () => rmSync(record)].entries()) {
      damage();
      // The file that the container has mounted, blank only until the pod is read again.
      await expect.poll(() => expectTold(container, sandbox, pod), patience).toBe(index + 2);
      await systemClock.sleep(severalRoundsMs);
      expect(await expectTruth(bench, sandbox, pod)).toBe(index + 2);
    }
    expect(logger.messages('warn')).toContain('completed an interrupted prepare');
  });

  it('a reboot: nothing of the boot before counts, and what the kubelet prepares again is set up anew', async () => {
    writeFileSync(bootIdPath, 'boot-1');
    await bench.startDriver();
    const pod = await addVfPod(bench, 'rebooted', 0);
    await expectTruth(bench, await bench.startPod(pod), pod);
    await bench.stopDriver();
    // A reboot removes sandboxes with their namespaces, and the tmpfs with the CDI specs. Everything else is on disk.
    await bench.endSandboxes(pod);
    for (const file of readdirSync(bench.settings.cdiDir)) rmSync(join(bench.settings.cdiDir, file));
    expect(isTold(bench, pod)).toBe(true);
    writeFileSync(bootIdPath, 'boot-2');
    await bench.startDriver();
    expect(isTold(bench, pod)).toBe(false);
    const [claim] = storedClaims(bench);
    expect([claim?.state, claim?.devices[0]?.attachment]).toEqual(['preparing', undefined]);
    await bench.kubelet.restart();
    await retry(() => bench.kubelet.prepare(pod));
    expect(await expectTruth(bench, await bench.runSandbox(pod), pod)).toBe(2);
  });
});
