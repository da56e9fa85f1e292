import { describe, expect, it } from 'vitest';
import { createOneByOne } from '../../src/one-by-one.ts';

describe('createOneByOne()', () => {
  it('runs tasks in their order, each in a turn of its own, and none at once', async () => {
    const later = createOneByOne();
    const log: string[] = [];
    for (const name of ['a', 'b', 'c']) later(() => log.push(name));
    expect(log).toEqual([]);
    for (const expected of [['a'], ['a', 'b'], ['a', 'b', 'c']]) {
      await new Promise((resolve) => setImmediate(resolve));
      expect(log).toEqual(expected);
    }
    later(() => log.push('d'));
    await new Promise((resolve) => setImmediate(resolve));
    expect(log).toEqual(['a', 'b', 'c', 'd']);
  });
});
