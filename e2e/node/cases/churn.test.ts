import { describe, expect, it } from 'vitest';
import { runChurn } from '../faults/run-churn.ts';

describe('pods that come and go', () => {
  it('under restarts of driver and containerd: the short version of `npm run churn`', async () => {
    const lines: string[] = [];
    const report = (line: string) => lines.push(line);
    const problems = await runChurn({
      pods: 12,
      rounds: 1,
      vfs: 12,
      parallel: 8,
      restarts: 2,
      seed: 20_261_121,
      report,
    });
    expect(problems, lines.join('\n')).toEqual([]);
    // Includes time for pods that are given up to be reported.
  }, 240_000);
});
