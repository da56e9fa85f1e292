import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { formatCompatibility, type PairResult } from '../../../e2e/cluster/compatibility.ts';

const result: PairResult = {
  ...{ kubernetes: '1.36', runtime: 'containerd-2.1', runtimeLabel: 'containerd 2.1', vitestArguments: [] },
  ...{ date: '2026-11-22', succeeded: true, passed: 150, failed: 0, skipped: 3 },
};
const chosen = ['suite.test.ts', '-t', 'faults|when something goes wrong'];

describe('formatCompatibility', () => {
  it('has the whole suite first, and a table for each choice of cases', () => {
    const text = formatCompatibility([
      { ...result, vitestArguments: chosen, runtime: 'crio', runtimeLabel: 'CRI-O 1.37.0 with crun 1.8.1' },
      result,
      { ...result, kubernetes: '1.34', date: '2026-11-20', succeeded: false, passed: 148, failed: 2 },
      {
        ...result,
        kubernetes: '1.34',
        runtime: 'containerd-1.7',
        runtimeLabel: 'containerd 1.7',
        succeeded: false,
        passed: 0,
      },
    ]);
    const rows = text.split('\n').filter((line) => /^(\||##|Run on)/.test(line));
    expect(rows).toEqual([
      '## All cases',
      'Run on 2026-11-20 to 2026-11-22.',
      '| Kubernetes | containerd 2.1 | containerd 1.7 | CRI-O |',
      '| --- | --- | --- | --- |',
      expect.stringMatching(/^\| 1\.36\.\d+ \| 150 passed, 3 skipped \| not run \| not run: no --crio \|$/),
      expect.stringMatching(/^\| 1\.35\.\d+ \| not run \| not run \| not run: no --crio \|$/),
      expect.stringMatching(
        /^\| 1\.34\.\d+ \| 148 passed, 2 failed, 3 skipped \| did not start \| not run: no --crio \|$/,
      ),
      "## Cases chosen by suite.test.ts -t 'faults|when something goes wrong'",
      'Run on 2026-11-22.',
      '| Kubernetes | CRI-O 1.37.0 with crun 1.8.1 |',
      '| --- | --- |',
      expect.stringMatching(/^\| 1\.36\.\d+ \| 150 passed \|$/),
      expect.stringMatching(/^\| 1\.35\.\d+ \| not run \|$/),
      expect.stringMatching(/^\| 1\.34\.\d+ \| not run \|$/),
    ]);
  });

  it('gives the page as it is, from the results that are there', () => {
    const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), 'utf8');
    const results = JSON.parse(read('e2e/cluster/compatibility.json')) as PairResult[];
    expect(read('docs/compatibility.md')).toBe(formatCompatibility(results));
  });
});
