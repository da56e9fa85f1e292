import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RecordingLogger } from '../../../test/doubles/logger.ts';
import { Bench } from '../bench.ts';
import type { ContainerdSeries } from '../tools.ts';
import { addVfPod, changeStore, expectClean, expectTruth } from '../vf-pod.ts';

const reconcileIntervalMs = 300;
const patience = { timeout: 15_000 };

/** All else that reconciliation makes up for: e2e/cluster/cases/faults.ts and the simulation. */
const version: ContainerdSeries = '1.7';

describe(`what the driver makes up for, on containerd ${version}`, () => {
  let bench: Bench;
  const logger = new RecordingLogger();

  beforeAll(async () => {
    bench = await Bench.start({ version, logger, settings: { reconcileIntervalMs } });
  });
  afterAll(async () => {
    await bench?.[Symbol.asyncDispose]();
  });
  afterEach(async () => {
    await bench.endAllPods();
    await bench.stopDriver();
    await expectClean(bench);
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
});
