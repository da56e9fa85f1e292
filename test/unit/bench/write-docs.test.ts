import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { allBenches } from '../../bench/benches/index.ts';
import type { Machine } from '../../bench/machine.ts';
import { type BenchResult, bound, row } from '../../bench/result.ts';
import { writeDocs } from '../../bench/write-docs.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const machine: Machine = {
  ...{ processor: 'one', cores: 2, memoryGb: 4, kernel: '6.18', system: 'Debian', node: 'v24.0.0', load: 0 },
};
const page = ['bounds', 'start', 'hook'].map((name) => `# ${name}\n<!-- bench ${name} -->\n<!-- end -->`).join('\n');

function result(name: string, value: number): BenchResult {
  const measured = { median: value, p99: value, runs: 1 };
  return { name, about: `About ${name}.`, rows: [row('it', 'ms', measured)], bounds: [bound(name, value, 5, 'ms')] };
}

describe('writeDocs', () => {
  it.each(allBenches.map(({ name }) => name))('has a place for %s in docs/performance.md', (name) => {
    expect(readFileSync(new URL('../../../docs/performance.md', import.meta.url), 'utf8')).toContain(
      `<!-- bench ${name} -->`,
    );
  });

  it('keeps figures and bounds of the benches that a run leaves out', () => {
    using dir = tempDir();
    mkdirSync(join(dir.path, 'performance'));
    const path = join(dir.path, 'performance.md');
    writeFileSync(path, page);
    const write = (...results: BenchResult[]) =>
      writeDocs(dir.path, { machine, finished: '2026-11-22T00:00:00Z', results });
    write(result('start', 1), result('hook', 2));
    write(result('hook', 7));
    const text = readFileSync(path, 'utf8');
    expect(text).toMatch(/# bounds[\s\S]*\| start +\| 1\.000 ms \| 5\.000 ms \| +met \|/);
    expect(text).toMatch(/# bounds[\s\S]*\| hook +\| 7\.000 ms \| 5\.000 ms \| NOT MET \|/);
    expect(text).toMatch(/# start[\s\S]*About start\.[\s\S]*# hook[\s\S]*\| it \| 7\.000 ms/);
    expect(text).not.toContain('2.000 ms');
  });

  it('refuses a page that has no place for a bench', () => {
    using dir = tempDir();
    writeFileSync(join(dir.path, 'performance.md'), page);
    const report = { machine, finished: '2026-11-22T00:00:00Z', results: [result('memory', 1)] };
    expect(() => writeDocs(dir.path, report)).toThrow('has no part <!-- bench memory -->');
  });
});
