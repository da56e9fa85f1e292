import { describe, expect, it } from 'vitest';
import { formatTotal, type PartResult, readVitestSummary, selectCases } from '../../../scripts/tests/results.ts';

const output = `
 FAIL   e2e-cluster  suite.test.ts > Cleanup (KEP-5304) > removes the files
 FAIL   e2e-cluster  suite.test.ts > Cleanup (KEP-5304) > removes the specs
AssertionError: expected 1 to be 0

 ❯ cases/cleanup.ts:10:3

 FAIL   e2e-cluster  api/claims.test.ts [ api/claims.test.ts ]
Error: no API server

     ↓ quick  a.test.ts > root > makes a device node [needs root]
      Tests  2 failed | 40 passed | 1 skipped (43)
`;

describe('readVitestSummary', () => {
  it('reads counts, failed cases with their common reason, and files that failed to load', () => {
    const { passed, failed, skipped, failures } = readVitestSummary(output);
    expect({ passed, failed, skipped }).toEqual({ passed: 40, failed: 2, skipped: 1 });
    expect(failures).toEqual([
      {
        cases: [
          { file: 'suite.test.ts', titles: ['Cleanup (KEP-5304)', 'removes the files'] },
          { file: 'suite.test.ts', titles: ['Cleanup (KEP-5304)', 'removes the specs'] },
        ],
        reason: 'AssertionError: expected 1 to be 0',
      },
      { cases: [{ file: 'api/claims.test.ts', titles: [] }], reason: 'Error: no API server' },
    ]);
  });

  it('reads the names of skipped cases', () => {
    expect(readVitestSummary(output).skippedCases).toEqual(['a.test.ts > root > makes a device node [needs root]']);
  });
});

it('selectCases builds a pattern for vitest that matches exactly the failed cases', () => {
  const pattern = new RegExp(selectCases(readVitestSummary(output).failures[0]!.cases));
  expect('Cleanup (KEP-5304) > removes the files').toMatch(pattern);
  expect('Cleanup (KEP-5304) > removes the specs').toMatch(pattern);
  expect('Cleanup KEP-5304 > removes the files').not.toMatch(pattern);
  expect('Cleanup (KEP-5304) > keeps the files').not.toMatch(pattern);
});

it('formatTotal counts a part that did not run as one skipped case', () => {
  const nothing = {
    versions: '',
    seconds: 0,
    failures: [],
    hasOtherErrors: false,
    skippedCases: [],
    secondAttempts: [],
  };
  const ran: PartResult = { ...nothing, name: 'units', passed: 5, failed: 1, skipped: 2, outcome: 'failed' };
  const left: PartResult = { ...nothing, name: 'kind', passed: 0, failed: 0, skipped: 0, outcome: 'not run' };
  expect(formatTotal([ran, left])).toBe('5 passed, 1 failed, 3 skipped');
});
