import { afterEach, expect, it } from 'vitest';
import { fuzzTarget } from '../../fuzz/fuzz-target.ts';

const plantedUrl = new URL('planted.ts', import.meta.url);
afterEach(() => {
  delete process.env.PLANTED_DEFECT;
});

it.each([
  ['endless-loop', /no end after/],
  ['endless-wait', /unsettled top-level await/],
  ['memory', /heap out of memory/],
  ['stray-rejection', /not awaited/],
  ['wrong-error', /TypeError: not announced/],
  ['cpu-time', /one input took \d{4} ms of CPU time/],
  ['pollution', /a shared prototype got polluted/],
])('finds a target with %s, and its input', { timeout: 120_000 }, async (defect, message) => {
  process.env.PLANTED_DEFECT = defect;
  const { findings } = await fuzzTarget(plantedUrl, 5, 1, 2);
  expect(findings).toHaveLength(1);
  expect(findings[0]!.message).toMatch(message);
  expect(findings[0]!.input).toContain(0xff);
});

it('reports how many inputs a target without defects took', { timeout: 60_000 }, async () => {
  const { findings, inputs } = await fuzzTarget(plantedUrl, 1, 1);
  expect(findings).toEqual([]);
  expect(inputs).toBeGreaterThan(100);
});

it('reports a target that cannot be loaded', { timeout: 60_000 }, async () => {
  const { findings } = await fuzzTarget(new URL('missing.ts', import.meta.url), 1, 1);
  expect(findings).toHaveLength(1);
  expect(findings[0]!.message).toMatch(/cannot be fuzzed: .*ERR_MODULE_NOT_FOUND/s);
});
