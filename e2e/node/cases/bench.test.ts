import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import type { Report } from '../../../test/bench/write-docs.ts';
import { tempDir } from '../../../test/doubles/temp-dir.ts';

const runPath = fileURLToPath(new URL('../../../test/bench/run.ts', import.meta.url));

/** The other benches: test/integration/bench.test.ts. */
it('npm run bench compares pods of a real containerd, with the driver and without', () => {
  using dir = tempDir();
  const json = join(dir.path, 'report.json');
  const args = [runPath, '--smoke', '--only', 'containerd', '--json', json];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  expect(status, stderr.slice(-2_000)).toBe(0);
  const { results } = JSON.parse(readFileSync(json, 'utf8')) as Report;
  expect(results).toMatchObject([{ name: 'containerd', bounds: [{ limit: 1.05, unit: '×' }] }]);
  const [{ rows } = { rows: [] }] = results;
  expect(rows.map(({ what, reference }) => [what, reference?.what])).toEqual([
    ['pod without claims', 'no plugin'],
    ['pod with 1 VF', 'no plugin, then a bare move'],
  ]);
});
