import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const plan = readFileSync(new URL('../../../REQUIREMENTS.md', import.meta.url), 'utf8');
/** `[name](../path): *part of a title*` */
const references = [...plan.matchAll(/\]\(\.\.\/([^)]+)\)(?:: \*([^*|]+)\*)?/g)].map(([, path = '', title = '']) => ({
  path,
  title,
}));

describe('test/REQUIREMENTS.md', () => {
  it('names existing tests', () => {
    const missing = references.filter(({ path, title }) => {
      const text = readFileSync(new URL(`../../../../${path}`, import.meta.url), 'utf8');
      return !text.includes(title);
    });
    expect(missing).toEqual([]);
    expect(references.length).toBeGreaterThan(60);
  });

  it('has every requirement that test titles cite', () => {
    const cited = readdirSync(import.meta.dirname)
      .filter((name) => name.endsWith('.test.ts'))
      .flatMap((name) =>
        [...readFileSync(join(import.meta.dirname, name), 'utf8').matchAll(/requirement ([\d.]*\d)/g)].map(
          ([, number]) => number,
        ),
      );
    const rows = new Set([...plan.matchAll(/^\| (\d+\.\d+) \|/gm)].map(([, number]) => number));
    expect(cited.filter((number) => !rows.has(number))).toEqual([]);
    expect(cited.length).toBeGreaterThan(40);
  });

  it('has every line of the test plan of KEP-5304', () => {
    const rows = [...plan.matchAll(/^\| ([A-Z][^|]*?) \|([^|]*)\|([^|]*)\|$/gm)];
    const lines = new Map(rows.map(([, line, played, real]) => [line, `${played}${real}`]));
    for (const line of [
      'End-to-end attribute exposure',
      'Multiple requests',
      'Container isolation',
      'Empty metadata',
      'Attribute types',
      'Generation number',
      'Cleanup',
      'Enable/disable',
      'Metadata file mounted',
      'Per-request isolation',
      'Correct content',
      'Multi-device request',
      'CDI integration',
      'Cleanup on delete',
    ]) {
      expect(lines.get(line), line).toMatch(/\.\.\/(test|e2e)\/.*\.ts\)/);
    }
  });
});
