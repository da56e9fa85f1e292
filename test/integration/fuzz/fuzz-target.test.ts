import { afterEach, expect, it } from 'vitest';
import { fuzzTarget } from '../../fuzz/fuzz-target.ts';

const plantedUrl = new URL('planted.ts', import.meta.url);
afterEach(() => {
  delete process.env.PLANTED_DEFECT;
});

it.each([
  ['endless-loop', /no end after/],
  ['memory', /heap out of memory/],
  ['wrong-error', /TypeError: not announced/],
])(
  'the fuzzer reports a target with %s, and the input that triggers it',
  { timeout: 120_000 },
  async (defect, message) => {
    process.env.PLANTED_DEFECT = defect;
    const { findings } = await fuzzTarget(plantedUrl, 1, 1, 2);
    expect(findings).toHaveLength(1);
    expect(findings[0]!.message).toMatch(message);
    expect(findings[0]!.input).toContain(0xff);
  },
);
