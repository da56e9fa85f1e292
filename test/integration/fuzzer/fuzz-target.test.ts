import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readReplay, saveFinding } from '../../fuzz/finding.ts';
import { type FuzzTargetOptions, fuzzTarget } from '../../fuzz/fuzz-target.ts';

/** Fuzzes a target with a planted fault until that is found; the time is only there so that the test ends. */
const hunt = (name: string, more: Partial<FuzzTargetOptions> = {}) =>
  fuzzTarget({
    name,
    targetUrl: new URL(`./planted/${name}.ts`, import.meta.url).href,
    seed: 7,
    durationMs: 60_000,
    maxFindings: 1,
    ...more,
  });

describe('fuzzTarget()', { timeout: 90_000 }, () => {
  it('finds an error that the target does not announce, through code that few inputs reach', async () => {
    const { findings, executions } = await hunt('nested-bug');
    expect(findings).toEqual([
      {
        target: 'nested-bug',
        seed: 7,
        kind: 'crash',
        message: expect.stringContaining('TypeError: planted'),
        input: Uint8Array.from(Buffer.from('nri!')),
      },
    ]);
    expect(executions).toBeGreaterThan(1);
  });

  it('does the same again with the same seed, and something else with another one', async () => {
    const [first, second, other] = [
      await hunt('nested-bug'),
      await hunt('nested-bug'),
      await hunt('nested-bug', { seed: 8 }),
    ];
    expect({ ...second, durationMs: 0 }).toEqual({ ...first, durationMs: 0 });
    expect(other.executions).not.toBe(first.executions);
  });

  it('lets announced errors pass, and tells what has run', async () => {
    const report = await hunt('announced-errors', { durationMs: 1000 });
    expect(report).toMatchObject({ findings: [], coveragePercent: 100 });
    expect(report.executions).toBeGreaterThan(1);
  });

  it.each([
    ['endless-loop', 'hang', /more than \d+ ms of CPU time/, undefined],
    ['endless-wait', 'stuck', /never come/, undefined],
    // Memory takes its time where many want some.
    ['huge-allocation', 'memory', /more than 320 MiB/, 20_000],
  ])('ends the thread of %s and keeps the input', async (name, kind, message, maxInputCpuMs = 1_000) => {
    const { findings } = await hunt(name, { maxInputCpuMs });
    expect(findings).toMatchObject([{ kind, message: expect.stringMatching(message) }]);
    expect(findings[0]?.input).toContain(0xff);
  });

  it.each([
    ['leak', 'leak', /MiB more in memory/],
    ['stray-rejection', 'crash', /nobody waits for this/],
    ['prototype-pollution', 'crash', /shared prototype got/],
  ])('finds what %s leaves behind', async (name, kind, message) => {
    const { findings } = await hunt(name);
    expect(findings).toMatchObject([{ kind, message: expect.stringMatching(message) }]);
  });

  it('runs the input of a finding again', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'netdra-'));
    try {
      const input = Uint8Array.from(Buffer.from('nri!'));
      const finding = { target: 'nested-bug', kind: 'crash', message: '', input, seed: 7 } as const;
      expect(saveFinding({ ...finding, kind: 'leak' }, dir)).toBe('npm run fuzz -- --target nested-bug --seed 7');
      const command = saveFinding(finding, dir);
      expect(command).toBe('npm run fuzz -- --target nested-bug --replay base64:bnJpIQ==');
      for (const where of ['base64:bnJpIQ==', join(dir, readdirSync(dir)[0]!)]) {
        const { findings, executions } = await hunt('nested-bug', { replay: readReplay(where) });
        expect(findings).toMatchObject([{ kind: 'crash', input }]);
        expect(executions).toBe(1);
      }
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  it('says which target cannot be fuzzed, and why', async () => {
    await expect(hunt('missing')).rejects.toThrow('target missing cannot be fuzzed');
  });
});
