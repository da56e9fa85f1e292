import { describe, expect, it } from 'vitest';
import { ClaimBatch } from '../../../../src/driver/claims/claim-batch.ts';

const works = ['a', 'b', 'c'].map((uid) => ({ uid }));

describe('ClaimBatch', () => {
  it('takes a claim that fails out of all further steps, and no other', async () => {
    const log: string[] = [];
    const store = {
      together: (task: () => void) => {
        log.push('begin');
        task();
        log.push('end');
      },
    };
    const batch = new ClaimBatch(store, works);
    const failure = new Error('of a');
    await batch.each(async ({ uid }) => {
      log.push(`each ${uid}`);
      if (uid === 'a') throw failure;
    });
    batch.together(({ uid }) => {
      log.push(`store ${uid}`);
      if (uid === 'b') throw new Error('of b');
    });
    await batch.each(async ({ uid }) => void log.push(`last ${uid}`));
    expect(log).toEqual(['each a', 'each b', 'each c', 'begin', 'store b', 'store c', 'end', 'last c']);
    expect(batch.errors.get('a')).toBe(failure);
    expect(batch.alive).toEqual([{ uid: 'c' }]);
  });

  it('fails as a whole when nothing can be stored', () => {
    const together = () => {
      throw new Error('the disk is full');
    };
    expect(() => new ClaimBatch({ together }, works).together(() => undefined)).toThrow('the disk is full');
  });
});
