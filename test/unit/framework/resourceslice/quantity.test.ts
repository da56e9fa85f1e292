import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseQuantity } from '../../../../src/framework/resourceslice/quantity.ts';

describe('parseQuantity', () => {
  it.each([
    ['1024Mi', '1Gi'],
    ['1000m', '1'],
    ['1.5G', '1500M'],
    ['0.5Ki', '512'],
    ['1e3', '1k'],
    ['1E3', '1000'],
    ['2E-3', '2m'],
    ['1E', '1000P'],
    ['.5', '500m'],
    ['5.', '5'],
    ['+7', '7'],
    ['-1500m', '-1.5'],
    ['100n', '0.1u'],
    // Nothing is finer than a billionth.
    ['0.1n', '1n'],
  ])('treats %s and %s as equal', (left, right) => {
    expect(parseQuantity(left)).toBe(parseQuantity(right));
    expect(parseQuantity(left)).toBeTypeOf('bigint');
  });

  it.each(['', '.', '-', 'Gi', '1GiB', '1 G', '1,5', '1e', '1e999999', '0x10', 'NaN', '१'])('rejects %j', (text) => {
    expect(parseQuantity(text)).toBeUndefined();
  });

  it('preserves the order of numbers with any suffix', () => {
    const suffixes: Record<string, number> = { m: 1e-3, '': 1, k: 1e3, M: 1e6, Ki: 1024, Mi: 1024 ** 2 };
    const quantity = fc.tuple(fc.integer({ min: -1e6, max: 1e6 }), fc.constantFrom(...Object.keys(suffixes)));
    fc.assert(
      fc.property(quantity, quantity, (left, right) => {
        const [a, b] = [left, right].map(([value, suffix]) => value * (suffixes[suffix] ?? 0)) as [number, number];
        const [x, y] = [left, right].map(([value, suffix]) => parseQuantity(`${value}${suffix}`)) as [bigint, bigint];
        expect(Math.sign(Number(x - y))).toBe(Math.sign(a - b));
      }),
    );
  });
});
