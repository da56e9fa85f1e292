import { expect, it } from 'vitest';
import { copyOf } from '../../../src/lib/copy.ts';

it('copies plain data deeply, so that later changes of the original do not show in the copy', () => {
  const original = { name: 'a', list: [{ size: 1n }, null, undefined], none: undefined };
  const copy = copyOf(original);
  expect(copy).toStrictEqual(original);
  original.list[0] = null;
  original.name = 'b';
  expect(copy).toStrictEqual({ name: 'a', list: [{ size: 1n }, null, undefined], none: undefined });
});
