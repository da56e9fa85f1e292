import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { checkWritableDirectories, layoutDirectories } from '../../../src/app/writable-directories.ts';
import { type LayoutName, RecordFiles } from '../../../src/framework/metadata/index.ts';
import type { Settings } from '../../../src/instance/settings.ts';
import { explain } from '../../../src/lib/errors.ts';
import { Bench } from '../framework/metadata/bench.ts';
import { recordOf, samples } from '../framework/metadata/samples.ts';

const record = recordOf(samples.kernel as NonNullable<typeof samples.kernel>);

let bench: Bench;
beforeEach(() => {
  bench = new Bench();
});
afterEach(() => bench[Symbol.dispose]());

const directories = (metadataLayouts: LayoutName[]) => {
  const { attributesDir, downwardApiDir, dataDir } = bench;
  return layoutDirectories(
    { metadataLayouts, attributesDir, downwardApiDir } as Settings,
    dataDir,
    new RecordFiles(dataDir),
  );
};
const paths = async (metadataLayouts: LayoutName[]) => (await directories(metadataLayouts)).map(({ path }) => path);

it('the writable directories include the layouts in the settings', async () => {
  expect(await paths(['v1', 'kep'])).toEqual([]);
  expect(await paths(['v1', 'downward-api'])).toEqual([bench.downwardApiDir]);
  expect(await paths(['attributes-json'])).toEqual([bench.attributesDir]);
});

it('the writable directories include layouts of prepared claims until they are unprepared', async () => {
  const before = bench.start({ layouts: ['v1', 'downward-api'] });
  await before.prepare(record, new Map());
  // The record of another claim says nothing as long as it is damaged.
  mkdirSync(join(bench.dataDir, 'dra-device-metadata/default_damaged'));
  writeFileSync(join(bench.dataDir, 'dra-device-metadata/default_damaged/claim.json'), '{');
  expect(await paths(['v1'])).toEqual([bench.downwardApiDir]);
  expect(await paths(['attributes-json'])).toEqual([bench.attributesDir, bench.downwardApiDir]);
  await before.unprepare(record.claim);
  expect(await paths(['v1'])).toEqual([]);
});

it('the report of an unwritable directory names the claims that need the directory', async () => {
  await bench.start({ layouts: ['downward-api'] }).prepare(record, new Map());
  writeFileSync(join(bench.path, 'file'), '');
  const [directory] = await directories(['v1']);
  const unwritable = { ...directory!, path: join(bench.path, 'file/pods') };
  let problem: unknown;
  try {
    checkWritableDirectories([unwritable]);
  } catch (error) {
    problem = error;
  }
  expect(explain(problem)).toMatch(
    /^cannot write to \S+\/file\/pods\S* .*\(ENOTDIR\), which prepared claims need for the layout downward-api \(.*--downward-api-dir\)$/,
  );
});
