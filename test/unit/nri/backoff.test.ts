import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { resolveOptions } from '../../../nri/plugin-options.ts';
import { backoffMs } from '../../../nri/timers.ts';

function delays(count: number, random: () => number): number[] {
  return Array.from({ length: count }, (_, attempts) => backoffMs(attempts, { initialMs: 250, maxMs: 30_000, random }));
}

describe('backoffMs()', () => {
  it('doubles up to its limit', () => {
    expect(delays(10, () => 0)).toEqual([125, 250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
  });

  it('stays between half the limit and the limit for any random value and attempt', () =>
    fc.assert(
      fc.property(fc.infiniteStream(fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })), (stream) => {
        for (const [index, delay] of delays(1200, () => stream.next().value).entries()) {
          const bound = Math.min(30_000, 250 * 2 ** index);
          expect(delay).toBeGreaterThanOrEqual(bound / 2);
          expect(delay).toBeLessThanOrEqual(bound);
        }
      }),
      { numRuns: 10 },
    ));
});

it('options of a plugin that are undefined get their defaults', () => {
  const plugin = { name: 'test', index: '10', handlers: {} };
  const { random, ...defaults } = resolveOptions(plugin).backoff;
  const nothing = { initialMs: undefined, maxMs: undefined, dialMaxMs: undefined, stableAfterMs: undefined };
  expect(resolveOptions({ ...plugin, backoff: nothing as never }).backoff).toEqual({ ...defaults, random });
});
