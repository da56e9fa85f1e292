import { describe, expect } from 'vitest';
import type { ResourceSlice } from '../../../../src/framework/resourceslice/index.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { devices, generations, it, names, onePool, poll } from './bench.ts';

describe('SlicePublisher', () => {
  it('returns the attributes of an offered device as text', async ({ own: bench, publisher }) => {
    const attributes = { mtu: { int: 9000 }, rdma: { bool: false }, 'example.com/nodes': { ints: [0, 1] } };
    publisher.publish(onePool([{ name: 'dev-0', attributes }, { name: 'dev-1' }]));
    const text = { 'example.com/nodes': '0,1', mtu: '9000', rdma: 'false' };
    const lookUp = (...devices: string[]) => devices.map((name) => publisher.lookupDeviceAttributes(testNode, name));
    expect(lookUp('dev-0', 'dev-1', 'dev-2')).toEqual([text, {}, undefined]);
    expect(publisher.lookupDeviceAttributes('other', 'dev-0')).toBeUndefined();
    // The API server would refuse it, so the pool stays as it is.
    publisher.publish(onePool([{ name: 'Dev' }]));
    expect(lookUp('dev-0', 'Dev')).toEqual([text, undefined]);
    expect(bench.errors).toMatchObject([{ code: 'slice-invalid' }]);
    publisher.publish({ pools: {} });
    expect(lookUp('dev-0')).toEqual([undefined]);
  });

  it('publishes a pool without devices as one empty slice', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool([])));
    expect(bench.slices()[0]?.spec.pool).toEqual({ name: testNode, generation: 1, resourceSliceCount: 1 });
    expect(await bench.settle(() => publisher.recheck())).toEqual([]);
  });

  it('publishes several pools, and withdraws unwanted pools', async ({ own: bench, publisher }) => {
    const pools = { [testNode]: { devices: devices(1) }, 'node-1/spare': { devices: devices(3) } };
    expect(await bench.settle(() => publisher.publish({ pools }))).toEqual(['POST', 'POST']);
    const byPool = () => bench.slices().map(({ spec }) => [spec.pool.name, spec.devices?.length]);
    expect(byPool().sort()).toEqual([
      [testNode, 1],
      ['node-1/spare', 3],
    ]);
    expect(await bench.settle(() => publisher.publish(onePool(devices(1))))).toEqual(['DELETE']);
    expect(byPool()).toEqual([[testNode, 1]]);
    expect(await bench.settle(() => publisher.publish({ pools: {} }))).toEqual(['DELETE']);
    expect(bench.slices()).toEqual([]);
  });

  it('withdraws slices and pools that an earlier version published under other names', async ({ own: bench }) => {
    const old = (name: string, pool: string) => ({
      kind: 'ResourceSlice',
      metadata: { name },
      spec: {
        driver: testDriver,
        nodeName: testNode,
        pool: { name: pool, generation: 7, resourceSliceCount: 1 },
        devices: devices(1),
      },
    });
    bench.api.create(old('random-name-xyz', testNode));
    bench.api.create(old('other', 'old-pool'));
    bench.api.create({
      ...old('foreign', testNode),
      spec: { ...old('', testNode).spec, driver: 'gpu.example.com' },
    });
    const publisher = bench.start();
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    expect(bench.slices().map(({ metadata }) => metadata.name)).toEqual(['foreign', `${testNode}-${testDriver}-0000`]);
    // Above what was there, or the allocator would take what it knows for newer.
    expect(bench.slices().map(({ spec }) => spec.pool.generation)).toEqual([7, 8]);
  });

  it("publishes taints in slices of 64 devices, and keeps each taint's time", async ({ own: bench }) => {
    const firstTime = '2019-01-01T00:00:00Z';
    // As the real server does.
    using _timed = bench.api.admit('ResourceSlice', (slice) => {
      for (const device of (slice as unknown as ResourceSlice).spec.devices ?? []) {
        for (const taint of device.taints ?? []) taint.timeAdded ??= firstTime;
      }
    });
    const publisher = bench.start();
    const taints = [{ key: 'netdra.dev/link-down', effect: 'NoSchedule' as const }];
    const tainted = () => devices(100).map((device, n) => (n === 0 ? { ...device, taints } : device));
    await bench.settle(() => publisher.publish(onePool(tainted())));
    expect(names(bench.slices()).map(({ length }) => length)).toEqual([64, 36]);
    expect(bench.slices()[0]?.spec.devices?.[0]?.taints).toEqual([{ ...taints[0], timeAdded: firstTime }]);
    expect(await bench.settle(() => publisher.recheck())).toEqual([]);

    await publisher[Symbol.asyncDispose]();
    const back = '2020-01-01T00:00:00Z';
    bench.api.edit<{ spec: { devices: { taints: { timeAdded: string }[] }[] } }>(
      'ResourceSlice',
      `${testNode}-${testDriver}-0000`,
      ({ spec }) => {
        for (const taint of spec.devices[0]?.taints ?? []) taint.timeAdded = back;
      },
    );
    const changed = tainted();
    changed[1] = { name: 'dev-1', attributes: { vfIndex: { int: 77 } } };
    const second = bench.start();
    expect(await bench.settle(() => second.publish(onePool(changed)))).toEqual(['PUT']);
    expect(bench.slices()[0]?.spec.devices?.[0]?.taints).toEqual([{ ...taints[0], timeAdded: back }]);
  });

  it('copies its input, so that later changes by the driver have no effect', async ({ own: bench, publisher }) => {
    const mine = devices(300);
    await bench.settle(() => publisher.publish(onePool(mine)));
    for (const device of mine) device.attributes = { up: { bool: true } };
    expect(await bench.settle(() => publisher.publish(onePool(mine)))).toEqual(['PUT', 'PUT', 'PUT']);
    expect(generations(bench.slices())).toEqual([2, 2, 2]);
  });

  it('keeps the slices on shutdown', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    await publisher[Symbol.asyncDispose]();
    await publisher[Symbol.asyncDispose]();
    expect(bench.slices()).toHaveLength(1);
    expect(bench.clock.sleeping()).toEqual([]);
    await poll(() => bench.api.watchCount).toBe(0);
  });
});
