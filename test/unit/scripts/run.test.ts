import { mkdtempSync, rmSync } from 'node:fs';
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
});
