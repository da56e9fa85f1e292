import { expect, it } from 'vitest';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { startBench } from './bench.ts';

it('a delayed second unprepare call does not affect a claim that was prepared for the next pod meanwhile', async () => {
  const calls: string[] = [];
  const late = Promise.withResolvers<void>();
  let next: 'at once' | 'late' | 'waits' = 'at once';
  // In a rolling update the other instance has the lock meanwhile, and the queue of a lock file has no order.
  class Locks extends KeyedMutex {
    override async acquireAll(keys: readonly string[], signal?: AbortSignal) {
      if (next === 'late') {
        next = 'waits';
        await late.promise;
      }
      return await super.acquireAll(keys, signal);
    }
  }
  await using bench = await startBench(
    {
      prepareResourceClaims: async (claims) => {
        calls.push('prepare');
        return new Map(claims.map(({ identity }) => [identity.uid, { devices: [] }]));
      },
      unprepareResourceClaims: async (claims) => {
        calls.push('unprepare');
        return new Map(claims.map(({ uid }) => [uid, undefined]));
      },
    },
    { locks: new Locks(), serialize: false },
  );
  const client = bench.kubelet.client(testDriver);
  const { wire } = bench.addPod('a');
  await client.nodePrepareResources([wire]);
  next = 'late';
  const second = client.nodeUnprepareResources([wire]);
  await expect.poll(() => next).toBe('waits');
  await client.nodeUnprepareResources([wire]);
  await client.nodePrepareResources([wire]);
  late.resolve();
  expect((await second).claims).toEqual({ [wire.uid]: { error: '' } });
  expect(calls).toEqual(['prepare', 'unprepare', 'prepare']);
  await client.nodeUnprepareResources([wire]);
  expect(calls).toEqual(['prepare', 'unprepare', 'prepare', 'unprepare']);
});
