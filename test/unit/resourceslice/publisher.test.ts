import { KubeConfig, type V1ResourceSlice } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/clock.ts';
import { createKubeSliceApi, SlicePublisher } from '../../../src/resourceslice/index.ts';
import { ApiServer } from '../../doubles/api-server.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { buildNode, testDriver, testNode } from '../../doubles/objects.ts';

async function startBench() {
  const stack = new AsyncDisposableStack();
  const api = stack.use(await ApiServer.start());
  const node = buildNode();
  api.create(node);
  const config = new KubeConfig();
  config.loadFromString(api.kubeconfig());
  const logger = new RecordingLogger();
  const start = () =>
    stack.use(
      new SlicePublisher(createKubeSliceApi(config), {
        driver: testDriver,
        nodeName: testNode,
        clock: systemClock,
        logger,
      }),
    );
  const slices = () => api.objects<V1ResourceSlice>('ResourceSlice');
  return { api, node, logger, start, slices, [Symbol.asyncDispose]: () => stack.disposeAsync() };
}

const devices = (count: number) =>
  Array.from({ length: count }, (_, n) => ({ name: `dev-${n}`, attributes: { vfIndex: { int: n } } }));

describe('SlicePublisher', () => {
  it('publishes a pool named after the node, owned by the node', async () => {
    await using bench = await startBench();
    bench.start().publish(devices(2));
    await expect.poll(bench.slices).toHaveLength(1);
    expect(bench.slices()[0]).toMatchObject({
      metadata: { ownerReferences: [{ kind: 'Node', name: testNode, uid: bench.node.metadata.uid, controller: true }] },
      spec: {
        driver: testDriver,
        nodeName: testNode,
        pool: { name: testNode, generation: 1, resourceSliceCount: 1 },
        devices: devices(2),
      },
    });
  });

  it('cuts a large pool into slices of 128 devices', async () => {
    await using bench = await startBench();
    bench.start().publish(devices(300));
    await expect.poll(() => bench.slices().map(({ spec }) => spec.devices?.length)).toEqual([128, 128, 44]);
  });

  it('writes nothing when nothing changed, and a new generation when something did', async () => {
    await using bench = await startBench();
    const first = bench.start();
    first.publish(devices(2));
    await expect.poll(bench.slices).toHaveLength(1);
    await first[Symbol.asyncDispose]();
    const writes = () => bench.api.log.filter(({ method }) => method !== 'GET').length;
    const lists = () =>
      bench.api.log.filter(({ method, path }) => method === 'GET' && path.endsWith('/resourceslices')).length;
    const before = { writes: writes(), lists: lists() };
    const second = bench.start();
    second.publish(devices(2));
    await expect.poll(lists).toBeGreaterThan(before.lists);
    await systemClock.sleep(50);
    expect(writes()).toBe(before.writes);
    second.publish(devices(3));
    await expect.poll(() => bench.slices()[0]?.spec.pool.generation).toBe(2);
  });

  it('puts back what others took away', async () => {
    await using bench = await startBench();
    const publisher = bench.start();
    publisher.publish(devices(1));
    await expect.poll(bench.slices).toHaveLength(1);
    for (const slice of bench.slices()) bench.api.delete('ResourceSlice', slice.metadata?.name ?? '');
    publisher.recheck();
    await expect.poll(bench.slices).toHaveLength(1);
  });

  it('tries again after a failure, and says so', async () => {
    await using bench = await startBench();
    bench.api.failNext('POST /resourceslices', 500);
    bench.start().publish(devices(1));
    await expect.poll(bench.slices, { timeout: 5_000 }).toHaveLength(1);
    expect(bench.logger.messages('error')).toContain('resource slices not published');
  });
});
