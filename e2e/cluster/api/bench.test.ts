import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import type { Report } from '../../../test/bench/write-docs.ts';
import { tempDir } from '../../../test/doubles/temp-dir.ts';
import { isSince, readPrograms } from '../programs.ts';

const runPath = fileURLToPath(new URL('../../../test/bench/run.ts', import.meta.url));

// Upstream's test driver writes metadata from 1.36 on.
const hasMetadata = isSince(readPrograms(process.env).kubernetesVersion, '1.36');

it.runIf(hasMetadata)(
  'npm run bench prints every documented measurement with its reference',
  { timeout: 300_000 },
  () => {
    using dir = tempDir();
    const json = join(dir.path, 'report.json');
    const { status, stderr } = spawnSync(process.execPath, [runPath, '--smoke', '--json', json], {
      encoding: 'utf8',
    });
    expect(status, stderr.slice(-2_000)).toBe(0);
    const { results } = JSON.parse(readFileSync(json, 'utf8')) as Report;
    expect(results.map(({ name }) => name)).toEqual(['start', 'pod', 'memory', 'rest', 'go', 'go-hook', 'go-512']);
    for (const { name, rows } of results) {
      // Compared with another commit only on request.
      if (name === 'pod') continue;
      const compared = rows.filter(({ reference, ratio = 0 }) => reference !== undefined && ratio > 0);
      expect(compared.length, name).toBeGreaterThan(0);
    }
    // If the link were not moved, the answer would be as fast as for a pod without one.
    const rows = results.flatMap((result) => result.rows);
    const moved = rows.find(({ what }) => what === '1 VF moved')?.reference?.median ?? 0;
    const idle = rows.find(({ what }) => what === 'pod without any')?.reference?.median ?? Infinity;
    expect(moved).toBeGreaterThan(2 * idle);
  },
);
