import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { drawChart } from '../bench/chart.ts';
import type { Report } from '../bench/write-docs.ts';
import { tempDir } from '../doubles/temp-dir.ts';

const runPath = fileURLToPath(new URL('../bench/run.ts', import.meta.url));
/** Those beside Go: e2e/cluster/api/bench.test.ts. */
const names = ['start', 'memory', 'rest'];

describe('npm run bench', () => {
  it('measures all that it says, each with its reference, and judges it by its bounds', () => {
    using dir = tempDir();
    const json = join(dir.path, 'report.json');
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [runPath, '--smoke', '--only', names.join(','), '--json', json],
      { encoding: 'utf8' },
    );
    expect(status, stderr.slice(-2_000)).toBe(0);
    const { machine, results } = JSON.parse(readFileSync(json, 'utf8')) as Report;
    expect(machine).toMatchObject({ cores: expect.any(Number), node: process.version });
    expect(results.map(({ name }) => name)).toEqual(names);
    for (const { name, rows, bounds, plots = [] } of results) {
      expect(
        rows.filter(({ reference, ratio = 0 }) => reference !== undefined && ratio > 0).length,
        name,
      ).toBeGreaterThan(0);
      for (const { what, ours } of rows) expect(ours.p99, `${name}: ${what}`).toBeGreaterThanOrEqual(ours.median);
      for (const { what, value, limit, met } of bounds) expect({ what, met }).toEqual({ what, met: value <= limit });
      expect(bounds.length, name).toBeGreaterThan(0);
      for (const plot of plots) expect(drawChart(plot)).toMatch(/^<svg [\s\S]*<polyline points="\d[\s\S]*<\/svg>\n$/);
    }
    expect(stdout).toContain('| must show');
  }, 120_000);
});
