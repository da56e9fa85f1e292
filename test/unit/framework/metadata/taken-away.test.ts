import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ClaimRecord } from '../../../../src/framework/metadata/index.ts';
import { Bench } from './bench.ts';
import { driver } from './samples.ts';

const claim = { namespace: 'n', name: 'c', uid: 'u' };
const record: ClaimRecord = { claim, requests: { vf: { name: 'vf', devices: [{ pool: 'p', name: 'd' }] } } };
const devices = [{ driver, pool: 'p', name: 'd' }];

describe('an unprepared claim', () => {
  it('has its directory renamed before the files are deleted, so that a crash leaves nothing to later claims', async () => {
    using bench = new Bench();
    const tasks: (() => void)[] = [];
    const metadata = bench.start({ layouts: ['v1'], later: (task) => tasks.push(task) });
    const top = join(bench.dataDir, 'dra-device-metadata');
    await metadata.prepare(record, new Map([['vf', devices]]));
    await metadata.unprepare(claim);
    expect(existsSync(join(top, 'n_c'))).toBe(false);
    expect(readdirSync(bench.cdiDir)).toEqual([]);
    const [removed = ''] = readdirSync(top);
    expect(removed).toMatch(/^\.removed-/);
    expect(readdirSync(join(top, removed))).toEqual(['claim.json', 'vf']);
    expect(metadata.dirs()).toEqual([removed]);
    expect([await metadata.countFiles(), (await metadata.waiting()).problems]).toEqual([0, []]);

    await metadata.prepare(record, new Map([['vf', devices]]));
    expect((await metadata.read(claim, 'vf'))?.generation).toBe(1);
    await metadata.unprepare(claim);
    for (const task of tasks.splice(1)) task();
    expect(readdirSync(top)).toEqual([removed]);
    metadata.removeDir(removed);
    expect(readdirSync(top)).toEqual([]);
    tasks[0]?.();
  });

  it('leaves the files of the next claim of the same name alone', async () => {
    using bench = new Bench();
    const tasks: (() => void)[] = [];
    const metadata = bench.start({ layouts: ['v1'], later: (task) => tasks.push(task) });
    await metadata.prepare(record, new Map([['vf', devices]]));
    const successor = { ...claim, uid: 'v' };
    await metadata.prepare({ ...record, claim: successor }, new Map([['vf', devices]]));
    for (const task of tasks) task();
    expect((await metadata.read(successor, 'vf'))?.claim).toEqual(successor);
    const files = ['claim.json', 'vf/metadata.json'].map((file) =>
      existsSync(join(bench.dataDir, `dra-device-metadata/n_c/${file}`)),
    );
    expect(files).toEqual([true, true]);
  });
});
