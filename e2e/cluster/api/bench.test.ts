import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import type { Report } from '../../../test/bench/write-docs.ts';
import { tempDir } from '../../../test/doubles/temp-dir.ts';
import { readPrograms } from '../programs.ts';

const runPath = fileURLToPath(new URL('../../../test/bench/run.ts', import.meta.url));

/** The other benches: test/integration/bench.test.ts. */
// Upstream's test driver writes metadata from 1.36 on.
const hasMetadata = readPrograms(process.env).kubernetesVersion === '1.36';

it.runIf(hasMetadata)(
  'npm run bench measures the driver beside programs in Go, which do what they are compared for',
  () => {
    using dir = tempDir();
    const json = join(dir.path, 'report.json');
    const args = [runPath, '--smoke', '--only', 'go,go-hook,go-512', '--json', json];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    expect(status, stderr.slice(-2_000)).toBe(0);
    const { results } = JSON.parse(readFileSync(json, 'utf8')) as Report;
    const rows = results.flatMap((result) => result.rows);
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
  180_000,
);
