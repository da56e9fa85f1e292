import { describe, expect, it } from 'vitest';
import { isTooDeep, maxJsonDepth } from '../../../src/lib/json-depth.ts';

const nested = (levels: number) => JSON.parse(`${'[{"a":'.repeat(levels / 2)}1${'}]'.repeat(levels / 2)}`);

describe('isTooDeep', () => {
  it('counts levels of objects and lists, and accepts exactly the limit', () => {
    expect([isTooDeep(1), isTooDeep(null), isTooDeep([]), isTooDeep(nested(maxJsonDepth))]).toEqual(
      Array.from({ length: 4 }, () => false),
    );
    expect(isTooDeep(nested(maxJsonDepth + 2))).toBe(true);
    expect(isTooDeep([nested(maxJsonDepth)])).toBe(true);
  });

  it('terminates for 100,000 levels, for a cycle, and for values shared on each level', () => {
    expect(isTooDeep(nested(100_000))).toBe(true);
    const cycle: unknown[] = [];
    cycle.push(cycle);
    expect(isTooDeep(cycle)).toBe(true);
    let doubled: unknown = 1;
    for (let level = 0; level < maxJsonDepth; level++) doubled = [doubled, doubled];
    expect(isTooDeep(doubled)).toBe(false);
  });
});
