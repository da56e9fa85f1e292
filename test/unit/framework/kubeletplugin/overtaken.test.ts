import { expect, it } from 'vitest';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { startBench } from './bench.ts';

/** Calls of a driver whose next call to unprepare can be made to wait until `release`. */
async function startLateBench() {
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
  const bench = await startBench(
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
  /** Begins a call to unprepare that waits. @returns its answer, once it is released */
  const unprepareLate = async () => {
    next = 'late';
    const answer = client.nodeUnprepareResources([wire]);
    await expect.poll(() => next).toBe('waits');
    return async () => {
      late.resolve();
      return (await answer).claims;
    };
  };
  return { bench, client, wire, calls, unprepareLate };
}

it('leaves a claim prepared for the next pod when a second call to unprepare it gets its turn late', async () => {
  const { bench, client, wire, calls, unprepareLate } = await startLateBench();
  await using _ = bench;
  const release = await unprepareLate();
  await client.nodeUnprepareResources([wire]);
  await client.nodePrepareResources([wire]);
  expect(await release()).toEqual({ [wire.uid]: { error: '' } });
  expect(calls).toEqual(['prepare', 'unprepare', 'prepare']);
  await client.nodeUnprepareResources([wire]);
  expect(calls).toEqual(['prepare', 'unprepare', 'prepare', 'unprepare']);
});

it('unprepares a claim although the driver has prepared it again by itself meanwhile', async () => {
  const { bench, wire, calls, unprepareLate } = await startLateBench();
  await using _ = bench;
  const release = await unprepareLate();
  await bench.helper.prepareAgain(wire, async () => true, new AbortController().signal);
  await release();
  expect(calls).toEqual(['prepare', 'prepare', 'unprepare']);
});
