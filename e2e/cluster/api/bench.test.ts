import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import type { Report } from '../../../test/bench/write-docs.ts';
import { tempDir } from '../../../test/doubles/temp-dir.ts';
import { isSince, readPrograms } from '../programs.ts';

const runPath = fileURLToPath(new URL('../../../test/bench/run.ts', import.meta.url));
/** In the order in which they run. */
const names = ['start', 'memory', 'rest', 'go', 'go-hook', 'go-512'];

// Upstream's test driver writes metadata from 1.36 on.
const hasMetadata = isSince(readPrograms(process.env).kubernetesVersion, '1.36');

it.runIf(hasMetadata)(
  'npm run bench measures all that it says, each with its reference, and judges it by its bounds',
  { timeout: 300_000 },
  () => {
    using dir = tempDir();
    const json = join(dir.path, 'report.json');
    const { status, stdout, stderr } = spawnSync(process.execPath, [runPath, '--smoke', '--json', json], {
      encoding: 'utf8',
    });
    expect(status, stderr.slice(-2_000)).toBe(0);
    const { machine, results } = JSON.parse(readFileSync(json, 'utf8')) as Report;
    expect(machine).toMatchObject({ cores: expect.any(Number), node: process.version });
    expect(results.map(({ name }) => name)).toEqual(names);
    for (const { name, rows, bounds } of results) {
      const compared = rows.filter(({ reference, ratio = 0 }) => reference !== undefined && ratio > 0);
      expect(compared.length, name).toBeGreaterThan(0);
      for (const { what, ours } of rows) expect(ours.p99, `${name}: ${what}`).toBeGreaterThanOrEqual(ours.median);
      for (const { what, value, limit, met } of bounds) expect({ what, met }).toEqual({ what, met: value <= limit });
      // With so few loads some of those beside Go have neither.
      if (!name.startsWith('go')) expect(bounds.length, name).toBeGreaterThan(0);
    }
    expect(stdout).toContain('| must show');
    const rows = results.filter(({ name }) => name.startsWith('go')).flatMap((result) => result.rows);
    const node = ['CPU for each claim', 'memory after these calls'];
    expect(rows.map(({ what }) => what)).toEqual([
      ...['prepare 1 claim', 'unprepare 1 claim', ...node],
      ...['pod without any', '1 VF moved', 'stop, 1 VF moved back'],
      ...['prepare 1 claim, 2 calls at once', 'unprepare 1 claim, 2 calls at once', ...node],
    ]);
    // One claim takes less CPU time than the kernel's clock can resolve.
    for (const { what, ours, reference } of rows.filter(({ what }) => !what.startsWith('CPU for each claim'))) {
      expect(ours.median, what).toBeGreaterThan(0);
      expect(reference?.median, what).toBeGreaterThan(0);
    }
    // If the link were not moved, the answer would be as fast as for a pod without one.
    const moved = rows.find(({ what }) => what === '1 VF moved')?.reference?.median ?? 0;
    const idle = rows.find(({ what }) => what === 'pod without any')?.reference?.median ?? Infinity;
    expect(moved).toBeGreaterThan(2 * idle);
  },
);
