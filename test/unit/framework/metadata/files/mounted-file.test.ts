import { existsSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hostPath } from '../../../../../src/framework/metadata/files/host-file.ts';
import { withdrawnFile } from '../../../../../src/framework/metadata/files/mounted-file.ts';
import { type ClaimMetadata, type LayoutName, layouts } from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, documentOf, kernel, place, recordOf } from '../samples.ts';

const record = recordOf(kernel);
const { devices } = documentOf(kernel);

let bench: Bench;
let metadata: ClaimMetadata;
beforeEach(async () => {
  bench = new Bench();
  metadata = bench.start();
  await metadata.prepare(record, new Map());
  await metadata.update(claim, 'vf', devices);
});
afterEach(() => bench[Symbol.dispose]());

const withdrawnLayouts = ['v1', 'kep', 'downward-api'] as const;
const fileOf = (name: LayoutName) => layouts[name].hostFile(bench, place(kernel));
const pathOf = (name: LayoutName) => hostPath(fileOf(name));
const hiddenOf = (name: LayoutName) => hostPath(withdrawnFile(fileOf(name)));

/** What the containers that have mounted the files see. */
function mountAll(): () => string[] {
  const root = bench.enter(claim.uid);
  const paths = withdrawnLayouts.map((name) => join(root, layouts[name].containerPaths(place(kernel))[0] as string));
  return () => paths.map((path) => readFileSync(path, 'utf8').trim());
}

const current = () => withdrawnLayouts.map((name) => readFileSync(pathOf(name), 'utf8').trim());
const isMissing = () => withdrawnLayouts.map((name) => existsSync(pathOf(name)));
const blank = ['', '', ''];
const none = [false, false, false];

describe('a withdrawn file without a start gate', () => {
  it('is blank in running containers, missing for new containers, and shows the next content to both', async () => {
    const seen = mountAll();
    for (const round of [1, 2]) {
      await metadata.withdraw(claim);
      expect([seen(), isMissing()], `${round}`).toEqual([blank, none]);
      await metadata.update(claim, 'vf', devices);
      expect(seen(), `${round}`).toEqual(current());
      expect(JSON.parse(seen()[1] as string)).toMatchObject({ metadata: { generation: round + 1 } });
    }
    expect(bench.files().filter((name) => name.includes('withdrawn'))).toEqual([]);
  });

  it('shows the next content after a restart, even if the driver then uses start gates', async () => {
    const seen = mountAll();
    await metadata.withdraw(claim);
    const next = bench.start({ gate: { program: '/opt/gate', timeoutSeconds: 9 } });
    expect(await next.restore()).toEqual([]);
    expect([seen(), isMissing()]).toEqual([blank, none]);
    await next.prepare(record, new Map());
    // Containers wait at the gate.
    expect([seen(), current()]).toEqual([blank, blank]);
    await next.update(claim, 'vf', devices);
    expect(seen()).toEqual(current());
  });

  it('is withdrawn completely at the next start if the process was killed during the withdrawal', async () => {
    const seen = mountAll();
    const texts = withdrawnLayouts.map((name) => readFileSync(pathOf(name), 'utf8'));
    const inodes = withdrawnLayouts.map((name) => statSync(pathOf(name)).ino);
    const isRenamed = { v1: false, kep: true, 'downward-api': true };
    await metadata.withdraw(claim);
    for (const [index, name] of withdrawnLayouts.entries()) {
      writeFileSync(hiddenOf(name), texts[index] as string);
      if (!isRenamed[name]) renameSync(hiddenOf(name), pathOf(name));
    }
    expect(await bench.start().restore()).toEqual([]);
    expect([seen(), isMissing()]).toEqual([blank, none]);
    expect(withdrawnLayouts.map((name) => statSync(hiddenOf(name)).ino)).toEqual(inodes);
  });

  it('gets its content and name back at the next start if the process was killed during an update', async () => {
    const seen = mountAll();
    const texts = current();
    for (const name of withdrawnLayouts) renameSync(pathOf(name), hiddenOf(name));
    writeFileSync(hiddenOf('kep'), ' '.repeat(statSync(hiddenOf('kep')).size));
    expect(await bench.start().restore()).toEqual([]);
    expect([current(), seen()]).toEqual([texts, texts]);
  });

  it('continues the generations that containers have read, even if the record is lost', async () => {
    await metadata.withdraw(claim);
    writeFileSync(join(bench.dataDir, 'dra-device-metadata/default_fast-net/claim.json'), '');
    await metadata.prepare(record, new Map());
    expect((await metadata.update(claim, 'vf', devices)).generation).toBeGreaterThan(1_700_000_000);
    const seen = mountAll();
    await metadata.withdraw(claim);
    writeFileSync(join(bench.dataDir, 'dra-device-metadata/default_fast-net/claim.json'), '');
    await metadata.prepare(record, new Map());
    await metadata.update(claim, 'vf', devices);
    expect(seen()).toEqual(current());
  });

  it('is removed by unprepare, with the directory of its pod', async () => {
    await metadata.withdraw(claim);
    expect(readdirSync(dirname(pathOf('downward-api')))).toHaveLength(1);
    await metadata.unprepare(claim);
    expect(bench.files()).toEqual([]);
    expect(existsSync(dirname(pathOf('downward-api')))).toBe(false);
  });

  it('is not confused with a file whose long name has the same beginning', () => {
    const names = ['x', 'y'].map((end) => `${'n'.repeat(245)}${end}.json`);
    const hidden = names.map((name) => withdrawnFile({ base: '/b', parts: [name] }).parts[0] as string);
    expect(new Set(hidden).size).toBe(2);
    for (const name of hidden) expect(Buffer.byteLength(name)).toBeLessThanOrEqual(255);
  });
});
