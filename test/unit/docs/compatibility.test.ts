import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type PairResult, replaceResults } from '../../../e2e/cluster/compatibility.ts';
import { repo } from './pages.ts';

const page = readFileSync(join(repo, 'docs/compatibility.md'), 'utf8');

describe('docs/compatibility.md', () => {
  it('contains the results in compatibility.json', () => {
    const results = JSON.parse(readFileSync(join(repo, 'e2e/cluster/compatibility.json'), 'utf8')) as PairResult[];
    expect(replaceResults(page, results)).toBe(page);
    const [first] = results;
    const failed = [{ ...first, succeeded: false, failed: 3 } as PairResult, ...results.slice(1)];
    expect(replaceResults(page, failed)).toContain(`| 3 failed ${first?.date} |`);
  });

  it('is not written if the marker line before the results is missing', () => {
    expect(() => replaceResults('# Compatibility\n', [])).toThrow('docs/compatibility.md has no line');
  });
});
