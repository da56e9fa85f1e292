import { describe, expect, it } from 'vitest';
import { formatFaults, runFaults } from '../faults/run-faults.ts';

describe('a driver that is killed right before one of the changes that it makes', () => {
  it('loses nothing: a sample of the points, of which `npm run faults` takes all', async () => {
    const rows = await runFaults({ scenarios: ['ipam'], phases: ['hook', 'unprepare'], every: 17 });
    expect(rows.flatMap(({ lost }) => lost)).toEqual([]);
    for (const { injected } of rows) expect(injected, formatFaults(rows)).toBeGreaterThan(0);
  });
});
