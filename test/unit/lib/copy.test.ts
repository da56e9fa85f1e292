import { expect, it } from 'vitest';
import { copyOf } from '../../../src/lib/copy.ts';

it('copyOf copies plain data deeply, so that the copy does not change with the original', () => {
  const original = { name: 'a', list: [{ size: 1n }, null, undefined], none: undefined };
  const copy = copyOf(original);
  expect(copy).toStrictEqual(original);
  original.list[0] = null;
  original.name = 'b';
  expect(copy).toStrictEqual({ name: 'a', list: [{ size: 1n }, null, undefined], none: undefined });
});
