import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Part } from '../../../scripts/tests/part.ts';
import { runStages } from '../../../scripts/tests/run.ts';

const folder = mkdtempSync(join(tmpdir(), 'netdra-results-'));
afterAll(() => rmSync(folder, { recursive: true }));

function makePart(script: string, more: Partial<Part> = {}): Part {
  return { name: 'some part', versions: '', command: ['sh', '-c', script], seconds: 1, needs: [], ...more };
}

const vitestOutput = (failures: number, more = '') =>
  Array.from({ length: failures }, (_, index) => ` FAIL   quick  a.test.ts > case ${index}\nError: late\n\n`).join('') +
  `      Tests  ${failures} failed | 5 passed (${failures + 5})\n${more}`;

/** A part that fails with this output once, then passes. Returns what was repeated, too: `all of it`, or the titles. */
function failsOnce(output: string): Part & { repeated: () => string } {
  const dir = mkdtempSync(join(folder, 'part-'));
  writeFileSync(join(dir, 'output'), output);
  const repeat = (what: string) => `echo '${what}' > ${dir}/repeated; echo '      Tests  5 passed (5)'`;
  const script = `cd ${dir}; if [ -e output ]; then cat output; rm output; exit 1; fi; ${repeat('all of it')}`;
  const again: Part['again'] = (cases) => ['sh', '-c', repeat(cases.flatMap(({ titles }) => titles).join(', '))];
  return { ...makePart(script, { again }), repeated: () => readFileSync(join(dir, 'repeated'), 'utf8').trim() };
}

/** Runs a part, and returns whether it passed with all that was printed. */
async function runOnly(part: Part, mustRun = false): Promise<{ passed: boolean; printed: string }> {
  const log = vi.spyOn(console, 'log').mockReturnValue();
  onTestFinished(() => log.mockRestore());
  const passed = await runStages([[[part]]], mustRun, folder);
  return { passed, printed: log.mock.calls.join('\n') };
}

describe('runStages', () => {
  it('passes without the parts that the machine cannot run, unless all must run', async () => {
    const part = makePart('exit 1', { needs: [{ problem: () => 'needs root' }] });
    const { passed, printed } = await runOnly(part);
    expect(passed).toBe(true);
    expect(printed).toContain('skipped: needs root');
    expect((await runOnly(part, true)).passed).toBe(false);
  });

  it('fails a part whose programs cannot be built or fetched, and runs nothing of it', async () => {
    const prepare = () => Promise.reject(new Error('no rule to make target'));
    const part = makePart('echo was run', { prepare, again: () => ['echo', 'was run'] });
    const { passed, printed } = await runOnly(part);
    expect(passed).toBe(false);
    expect(printed).toContain('failed in some part:\n  some part > preparation\n    no rule to make target');
    expect(printed).toContain('0 passed, 1 failed, 0 skipped');
    expect(printed).not.toContain('was run');
  });

  it('fails a part that selects no case, since vitest succeeds then', async () => {
    const { passed, printed } = await runOnly(makePart("echo '      Tests  3 skipped (3)'"));
    expect(passed).toBe(false);
    expect(printed).toContain('failed in some part:\n  some part\n    no case passed');
  });

  describe('second attempt', () => {
    it('repeats only the failed cases, and counts all as passed', async () => {
      const part = failsOnce(vitestOutput(2));
      const { passed, printed } = await runOnly(part);
      expect(passed).toBe(true);
      expect(part.repeated()).toBe('case 0, case 1');
      expect(printed).toContain('7 passed, 0 failed, 0 skipped');
    });

    it.each([
      ['errors outside of cases', vitestOutput(1, '     Errors  1 error\n')],
      ['failed cases that are not named', vitestOutput(1).replace('1 failed', '2 failed')],
      ['a file that could not be loaded', ` FAIL   quick  b.test.ts [ b.test.ts ]\nError: typo\n\n${vitestOutput(1)}`],
      ['no failed case at all', 'cannot start\n'],
    ])('repeats the whole part after %s', async (_, output) => {
      const part = failsOnce(output);
      const { passed, printed } = await runOnly(part);
      expect(passed).toBe(true);
      expect(part.repeated()).toBe('all of it');
      expect(printed).toMatch(/passed at the second attempt in some part:\n {2}some part$/m);
      expect(printed).toContain('5 passed, 0 failed, 0 skipped');
    });
  });
});
