import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { createOneByOne } from '../../../src/lib/one-by-one.ts';

describe('createOneByOne()', () => {
  it('runs tasks in their order, one at a time, also after one that fails, and none at once', async () => {
    const later = createOneByOne();
    const log: string[] = [];
    for (const name of ['a', 'b', 'c']) {
      later(async () => {
        log.push(`begin ${name}`);
        await turn();
        if (name === 'a') throw new Error('of a');
        log.push(`end ${name}`);
      });
    }
    expect(log).toEqual([]);
    await expect.poll(() => log).toEqual(['begin a', 'begin b', 'end b', 'begin c', 'end c']);
  });
});
