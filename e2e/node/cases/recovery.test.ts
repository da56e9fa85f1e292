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

  it('(d) the directory of a claim that the store has lost goes, its specs with its unprepare; those of others stay', async () => {
    await bench.startDriver();
    const dialects = { sriovNetwork: {} };
    const [pod, alive] = [
      await addVfPod(bench, 'lost-row', 0, { dialects }),
      await addVfPod(bench, 'with-row', 1, { dialects }),
    ];
    await bench.prepare(pod);
    const sandbox = await bench.startPod(alive);
    changeStore(bench, "DELETE FROM claims WHERE name = 'lost-row'");
    const foreign = join(bench.settings.cdiDir, 'other.example.com_metadata_uid_vf.json');
    writeFileSync(foreign, '{"cdiVersion":"0.5.0","kind":"other.example.com/metadata","devices":[]}');
    const left = () => bench.claimFiles().filter((file) => /lost-row/.test(file));
    await expect.poll(left, patience).toEqual([]);
    await bench.kubelet.unprepare(pod);
    // The specs of the other claim for its metadata and its variables, and the foreign one.
    expect(readdirSync(bench.settings.cdiDir)).toHaveLength(3);
    rmSync(foreign);
    expect(await expectTruth(bench, sandbox, alive)).toBe(1);
  });
});
