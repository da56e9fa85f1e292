import { expect, it } from 'vitest';
import { Batch } from '../../../src/lib/batch.ts';

it('Batch skips the remaining steps of a failed item only', async () => {
  const log: string[] = [];
  const batch = new Batch(['a', 'b', 'c', 'd'].map((uid) => ({ uid })));
  const failures = new Map(['a', 'b', 'c'].map((uid) => [uid, new Error(`of ${uid}`)]));
  const step = (name: string, failing: string, uid: string) => {
    log.push(`${name} ${uid}`);
    if (uid === failing) throw failures.get(uid);
  };
  await batch.each(async ({ uid }) => step('first', 'a', uid));
  const next = batch.map(({ uid }) => {
    step('second', 'b', uid);
    return { uid, isNext: true };
  });
  next.run(({ uid, isNext }) => step(String(isNext), 'c', uid));
  await batch.each(async ({ uid }) => step('last', '', uid));
  const firsts = ['first a', 'first b', 'first c', 'first d'];
  expect(log).toEqual([...firsts, 'second b', 'second c', 'second d', 'true c', 'true d', 'last d']);
  expect([batch.errors, next.alive]).toEqual([failures, [{ uid: 'd', isNext: true }]]);
});

it('Batch stores an error for an item whose step throws a non-error', async () => {
  const batch = new Batch(['a', 'b', 'c'].map((uid) => ({ uid })));
  batch.run(({ uid }) => {
    if (uid === 'a') throw 'busy';
  });
  await batch.each(async ({ uid }) => {
    if (uid === 'b') throw undefined;
  });
  expect(batch.errors).toEqual(
    new Map([
      ['a', new Error('busy')],
      ['b', new Error('undefined')],
    ]),
  );
});
