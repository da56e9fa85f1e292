import { describe, expect } from 'vitest';
import type { ResourceSlice } from '../../../../src/framework/resourceslice/index.ts';
import { devices, generations, it, onePool, poll, recheckMs, type startBench } from './bench.ts';

type Bench = Awaited<ReturnType<typeof startBench>>;

/** Changes slices behind the publisher's back, and lets the time pass until it puts them back. */
async function disturb(bench: Bench, pauseMs: number, change: () => void): Promise<string[]> {
  return await bench.settle(async () => {
    change();
    await bench.pass(pauseMs);
  });
}

function remove(bench: Bench, ...indexes: number[]): void {
  const slices = bench.slices();
  for (const index of indexes) bench.api.delete('ResourceSlice', slices[index]?.metadata.name ?? '');
}

describe('SlicePublisher, when other clients change its slices', () => {
  it('restores all slices deleted by the kubelet, in one pass', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(500))));
    expect(await disturb(bench, 1_000, () => remove(bench, 0, 1, 2, 3))).toEqual(['POST', 'POST', 'POST', 'POST']);
    expect(generations(bench.slices())).toEqual([1, 1, 1, 1]);
  });

  it('checks its slices at once when asked to, as after a registration with the kubelet', async ({
    own: bench,
    publisher,
  }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    remove(bench, 0);
    publisher.recheck();
    await poll(bench.slices).toHaveLength(1);
  });

  it('undoes an edit, but keeps fields that the publisher does not own', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(2))));
    const edit = (slice: ResourceSlice) => {
      slice.spec.devices?.pop();
      slice.metadata.labels = { team: 'network' };
    };
    const name = bench.slices()[0]?.metadata.name ?? '';
    expect(await disturb(bench, 1_000, () => bench.api.edit<ResourceSlice>('ResourceSlice', name, edit))).toEqual([
      'PUT',
    ]);
    expect(bench.slices()[0]).toMatchObject({
      metadata: { labels: { team: 'network' } },
      spec: { devices: devices(2) },
    });
  });

  it('removes a slice that another client added to its pool', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(2))));
    const [mine] = bench.slices();
    const added = { kind: 'ResourceSlice', metadata: { name: 'added' }, spec: mine?.spec };
    expect(await disturb(bench, 1_000, () => bench.api.create(added))).toEqual(['DELETE']);
    expect(bench.slices()).toEqual([mine]);
  });

  it('publishes with a higher pool generation than another client has set', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(200))));
    const name = bench.slices()[0]?.metadata.name ?? '';
    const raise = (slice: ResourceSlice) => {
      slice.spec.pool.generation = 70;
    };
    await disturb(bench, 1_000, () => bench.api.edit<ResourceSlice>('ResourceSlice', name, raise));
    expect(generations(bench.slices())).toEqual([71, 71]);
  });

  it('waits longer each time another client repeats the same change', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    for (const pauseMs of [1_000, 2_000, 4_000]) {
      expect(await disturb(bench, pauseMs, () => remove(bench, 0))).toEqual(['POST']);
    }
    await bench.settle(() => bench.clock.advance(recheckMs));
    expect(await disturb(bench, 1_000, () => remove(bench, 0))).toEqual(['POST']);
  });

  it('does not mistake its own writes for changes by another client', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(300))));
    await bench.settle(() => publisher.publish(onePool(devices(200))));
    await bench.settle(() => publisher.publish({ pools: {} }));
    bench.api.sendBookmarks();
    await bench.idle();
    expect(bench.lists()).toBe(3);
  });

  it('keeps watching after the server ends the watch', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    bench.api.endWatches();
    await poll(() => bench.clock.sleeping()).toContain(1_000);
    // What happens in between is seen: the next watch begins where this one ended.
    remove(bench, 0);
    bench.clock.advance(1_000);
    expect(await disturb(bench, 1_000, () => undefined)).toEqual(['POST']);
  });

  it("lists again if the watch's version has expired", async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    bench.api.endWatches();
    await poll(() => bench.clock.sleeping()).toContain(1_000);
    remove(bench, 0);
    bench.api.compact();
    // Less than the five minutes that it would take without the watch.
    expect(await bench.passTime(() => bench.slices().length === 1)).toBeLessThan(60);
    expect(bench.logger.messages('warn')).toEqual(['cannot watch ResourceSlices: polling them instead']);
    await bench.passTime(() => bench.api.watchCount === 1);
  });

  it('polls every minute if it lacks permission to watch, and logs that once', async ({ own: bench }) => {
    bench.api.failNext(({ isWatch }) => isWatch, 403, { times: Infinity });
    const publisher = bench.start();
    publisher.publish(onePool(devices(1)));
    const attempts = () => bench.api.log.filter(({ isWatch }) => isWatch).length;
    // With 1, 2, 4 … 60 seconds in between, the twelfth comes after six minutes.
    expect(await bench.passTime(() => attempts() === 12)).toBeGreaterThan(300);
    expect(bench.logger.messages('warn')).toEqual(['cannot watch ResourceSlices: polling them instead']);
    remove(bench, 0);
    await bench.passTime(() => bench.slices().length === 1, 100);
  });

  it('recreates slices as owned by the current Node object when the Node is recreated', async ({
    own: bench,
    publisher,
  }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    const { name } = bench.node.metadata;
    bench.api.delete('Node', name);
    const reborn = bench.api.create({ kind: 'Node', metadata: { name } });
    // The garbage collector.
    await disturb(bench, 1_000, () => remove(bench, 0));
    expect(bench.slices()[0]?.metadata.ownerReferences?.[0]?.uid).toBe(reborn.metadata.uid);
  });
});
