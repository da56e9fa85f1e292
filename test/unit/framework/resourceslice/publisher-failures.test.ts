import { describe, expect } from 'vitest';
import { isKubeError } from '../../../../src/framework/kube/index.ts';
import {
  dropsTaints,
  type ResourceSlice,
  refusesLists,
  SliceError,
} from '../../../../src/framework/resourceslice/index.ts';
import { explain } from '../../../../src/lib/errors.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { devices, generations, it, onePool, poll, startBench } from './bench.ts';

describe('SlicePublisher on failures', () => {
  it('reports a failure to the driver, and retries after a second', async ({ own: bench }) => {
    bench.api.failNext('POST /resourceslices', 500, { message: 'etcd is away' });
    const publisher = bench.start();
    publisher.publish(onePool(devices(1)));
    await expect
      .poll(() => bench.errors.map(({ message }) => message))
      .toEqual(['POST /apis/resource.k8s.io/v1/resourceslices: the API server answered 500: etcd is away']);
    expect(bench.logger.lines.find(({ level }) => level === 'error')?.fields).toMatchObject({ retryMs: 1_000 });
    expect(await bench.settle(() => bench.clock.advance(1_000))).toEqual(['POST']);
    expect(bench.slices()).toHaveLength(1);
  });

  it.each([
    ['throws', () => expect.fail('onError is broken')],
    ['rejects', async () => expect.fail('onError is broken')],
  ])('publishes although onError %s', async (_how, onError) => {
    await using bench = await startBench();
    bench.api.failNext('POST /resourceslices', 500, { message: 'etcd is away' });
    const publisher = bench.start({ onError, onSynced: onError });
    publisher.publish(onePool(devices(1)));
    await expect.poll(() => bench.logger.messages('error')).toContain('callback failed');
    await bench.settle(() => bench.clock.advance(1_000));
    publisher.publish(onePool(devices(2)));
    await expect.poll(() => bench.slices()[0]?.spec.devices).toHaveLength(2);
  });

  it('names the disabled feature gate only if list attributes are rejected', async ({ own: bench }) => {
    const publisher = bench.start();
    const attributes = { 'resource.kubernetes.io/numaNode': { ints: [0, 1] }, mtu: { int: 1500 } };
    const refuse = (name: string) => {
      const message = `ResourceSlice "x" is invalid: spec.devices[0].attributes[${name}]: Invalid value: "": exactly one value must be specified`;
      bench.api.failNext('POST /resourceslices', 422, { message });
    };
    refuse('resource.kubernetes.io/numaNode');
    publisher.publish(onePool(devices(1, { attributes })));
    await expect.poll(() => bench.errors).toMatchObject([{ code: 'slice-lists-refused', pool: testNode }]);
    expect(explain(bench.errors[0]!)).toMatch(/numaNode.*switch on the feature gate DRAListTypeAttributes/s);
    expect(refusesLists(bench.errors[0]!)).toBe(true);
    refuse('mtu');
    publisher.publish(onePool(devices(2, { attributes })));
    await expect.poll(() => bench.errors.slice(1)).toMatchObject([{ code: 'api-invalid' }]);
  });

  it('waits longer after each failure, but publishes changed devices at once', async ({ own: bench }) => {
    const broken = bench.api.failNext('POST /resourceslices', 500, { times: Infinity });
    const publisher = bench.start();
    publisher.publish(onePool(devices(1)));
    await bench.pass(1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000);
    await poll(() => bench.clock.sleeping()).toContain(30_000);
    broken[Symbol.dispose]();
    expect(await bench.settle(() => publisher.publish(onePool(devices(2))))).toEqual(['POST']);
  });

  it('adds jitter of up to the pause itself, so that not all nodes retry at once', async () => {
    await using bench = await startBench({ random: 0.5 });
    bench.api.failNext('POST /resourceslices', 500, { times: 2 });
    bench.start().publish(onePool(devices(1)));
    await bench.pass(1_500, 3_000);
    // And a tenth more than five minutes for the next look.
    await poll(() => bench.clock.sleeping()).toContain(330_000);
    // The API server ends all watches, as it does when it stops.
    bench.api.endWatches();
    await poll(() => bench.clock.sleeping()).toContain(6_000);
  });

  it('retries at once after a conflict, without reporting it', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    // Another client writes between our list and our write.
    bench.api.delay('PUT /resourceslices/', 50);
    publisher.publish(onePool(devices(2)));
    await poll(() => bench.api.requests('PUT /resourceslices/')).toHaveLength(1);
    const label = (slice: ResourceSlice) => {
      slice.metadata.labels = { hurry: 'yes' };
    };
    bench.api.edit<ResourceSlice>('ResourceSlice', bench.slices()[0]?.metadata.name ?? '', label);
    await poll(() => bench.clock.sleeping()).toContain(50);
    expect(await bench.settle(() => bench.clock.advance(50))).toEqual(['PUT']);
    expect(bench.api.requests('PUT /resourceslices/').map(({ status }) => status)).toEqual([409, 200]);
    expect(bench.slices()[0]).toMatchObject({ metadata: { labels: { hurry: 'yes' } }, spec: { devices: devices(2) } });
    expect(bench.errors).toEqual([]);
  });

  it('reports after several attempts that a slice of another driver has the name of its slice', async ({
    own: bench,
  }) => {
    bench.api.create({
      kind: 'ResourceSlice',
      metadata: { name: `${testNode}-${testDriver}-0000` },
      spec: {
        driver: 'gpu.example.com',
        nodeName: testNode,
        pool: { name: 'x', generation: 1, resourceSliceCount: 1 },
      },
    });
    const publisher = bench.start();
    publisher.publish(onePool(devices(1)));
    for (const pauseMs of [50, 100, 200]) {
      await poll(() => bench.clock.sleeping()).toContain(pauseMs);
      expect(bench.errors).toEqual([]);
      bench.clock.advance(pauseMs);
    }
    await expect
      .poll(() => bench.errors.map(({ message }) => message))
      .toEqual([expect.stringContaining(`"${testNode}-${testDriver}-0000" already exists`)]);
  });

  it('does not publish an invalid pool, but keeps its old slices, and publishes all other pools', async ({
    own: bench,
    publisher,
  }) => {
    await bench.settle(() => publisher.publish(onePool(devices(1))));
    const bad = { name: 'dev-1', attributes: { vendor: { string: 'x'.repeat(65) } } };
    const pools = { [testNode]: { devices: [...devices(1), bad] }, other: { devices: devices(1) } };
    expect(await bench.settle(() => publisher.publish({ pools }))).toEqual(['POST']);
    const published = bench.slices().map(({ spec }) => [spec.pool.name, spec.devices] as const);
    expect(Object.fromEntries(published)).toEqual({ [testNode]: devices(1), other: devices(1) });
    const [error] = bench.errors;
    expect(error).toBeInstanceOf(SliceError);
    expect(error).toMatchObject({ code: 'slice-invalid', pool: testNode, device: 'dev-1' });
    expect(error?.message).toMatch(/^pool node-1 cannot be published: device dev-1: attributes\[vendor\]\.string "x+"/);
    await bench.settle(() => publisher.recheck());
    expect(bench.errors).toHaveLength(1);
  });

  it('publishes all other pools if publishing one pool fails', async ({ own: bench }) => {
    bench.api.failNext(({ method, body }) => method === 'POST' && JSON.stringify(body).includes('"a-pool"'), 500);
    const publisher = bench.start();
    publisher.publish({ pools: { 'a-pool': { devices: devices(1) }, 'b-pool': { devices: devices(1) } } });
    await poll(() => bench.slices().map(({ spec }) => spec.pool.name)).toEqual(['b-pool']);
    await poll(() => bench.clock.sleeping()).toContain(1_000);
    await bench.settle(() => bench.clock.advance(1_000));
    expect(bench.slices()).toHaveLength(2);
  });

  it('uses a higher pool generation after a generation was written only in part', async ({ own: bench, publisher }) => {
    await bench.settle(() => publisher.publish(onePool(devices(300))));
    const changed = devices(300, { attributes: { up: { bool: true } } });
    bench.api.failNext(/PUT .*0001$/, 500);
    publisher.publish(onePool(changed));
    await poll(() => bench.errors).toHaveLength(1);
    expect(generations(bench.slices())).toEqual([2, 1, 1]);
    await bench.settle(() => bench.clock.advance(1_000));
    expect(new Set(generations(bench.slices()))).toEqual(new Set([3]));
    expect(bench.slices().flatMap(({ spec }) => spec.devices)).toEqual(changed);
  });

  it('reports a missing node, and the remedy', async ({ own: bench }) => {
    bench.api.delete('Node', testNode);
    const publisher = bench.start();
    publisher.publish(onePool(devices(1)));
    await poll(() => bench.errors).toHaveLength(1);
    expect(bench.errors[0]).toMatchObject({
      code: 'slice-node-unknown',
      message: `there is no node ${testNode} to publish slices for`,
      hint: 'the node name must be that of the Node object of this machine',
    });
  });

  it('reports the permission error of the server to the driver, and retries less often', async ({ own: bench }) => {
    bench.api.failNext('GET /resourceslices', 403, { times: Infinity, message: 'resourceslices is forbidden' });
    const publisher = bench.start();
    publisher.publish(onePool(devices(1)));
    await bench.pass(1_000, 2_000, 4_000, 8_000, 16_000);
    await poll(() => bench.clock.sleeping()).toContain(300_000);
    expect(bench.errors.every((error) => isKubeError(error, 'api-forbidden'))).toBe(true);
    expect(bench.logger.lines[0]?.fields.reason).toMatch(/resourceslices is forbidden \(the driver's role lacks/);
  });

  it.each([401, 403])('keeps its retry pause if a restarted API server first answers %i', async (status) => {
    await using bench = await startBench();
    const away = bench.api.failNext('GET /resourceslices', 503, { times: Infinity });
    bench.start().publish(onePool(devices(1)));
    await bench.pass(1_000, 2_000, 4_000, 8_000, 16_000, 30_000);
    await poll(() => bench.clock.sleeping()).toContain(30_000);
    away[Symbol.dispose]();
    bench.api.failNext('GET /resourceslices', status);
    bench.clock.advance(30_000);
    await poll(() => bench.errors.at(-1)).toMatchObject({ httpStatus: status });
    await poll(() => bench.clock.sleeping()).toContain(30_000);
    expect(await bench.settle(() => bench.clock.advance(30_000))).toEqual(['POST']);
  });

  it('retries every 30 s while the server answers 401, since a new token may help', async ({ own: bench }) => {
    bench.api.failNext('GET /resourceslices', 401, { times: Infinity });
    bench.start().publish(onePool(devices(1)));
    await bench.pass(1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000);
  });

  it('does not change slices of the other instance in a rolling update, although the server drops fields', async ({
    own: bench,
  }) => {
    using _old = bench.api.admit('ResourceSlice', (slice) => {
      for (const device of (slice as unknown as ResourceSlice).spec.devices ?? []) delete device.bindsToNode;
    });
    const resources = onePool(devices(200, { bindsToNode: true }));
    const first = bench.start();
    await bench.settle(() => first.publish(resources));
    bench.start().publish(resources);
    await poll(() => bench.writes()).toEqual(['POST', 'POST', 'PUT', 'PUT']);
    // The first one looks after a second at what the other one has written.
    let seconds = 0;
    await bench.passTime(() => bench.writes().length > 4 || seconds++ === 30);
    expect(bench.writes()).toHaveLength(4);
  });

  it('does not rewrite a slice if the server only drops fields, or adds times to taints', async ({ own: bench }) => {
    using _old = bench.api.admit('ResourceSlice', (slice) => {
      for (const device of (slice as unknown as ResourceSlice).spec.devices ?? []) {
        delete device.bindsToNode;
        for (const taint of device.taints ?? []) taint.timeAdded ??= '2026-01-01T00:00:00Z';
      }
    });
    const taints = [{ key: 'down', effect: 'NoSchedule' as const }];
    const publisher = bench.start();
    await bench.settle(() => publisher.publish(onePool(devices(3, { taints, bindsToNode: true }))));
    expect(await bench.settle(() => publisher.recheck())).toEqual([]);
  });

  it('reports once which fields a server drops, and does not rewrite the slice', async ({ own: bench }) => {
    using _old = bench.api.admit('ResourceSlice', (slice) => {
      for (const device of (slice as unknown as ResourceSlice).spec.devices ?? []) delete device.taints;
    });
    const taints = [{ key: 'down', effect: 'NoSchedule' as const }];
    const publisher = bench.start();
    await bench.settle(() => publisher.publish(onePool(devices(3, { taints }))));
    expect(await bench.settle(() => publisher.recheck())).toEqual([]);
    expect(bench.errors).toHaveLength(1);
    expect(bench.errors[0]).toMatchObject({ code: 'slice-fields-dropped', pool: testNode });
    expect(dropsTaints(bench.errors[0]!)).toBe(true);
    expect(bench.errors[0]?.message).toMatch(
      /^pool node-1 is published without some of its fields: device dev-0: taints was dropped by the API server; /,
    );
    // Another change goes out, and is no reason to say it again.
    expect(await bench.settle(() => publisher.publish(onePool(devices(4, { taints }))))).toEqual(['PUT']);
    expect(await bench.settle(() => publisher.recheck())).toEqual([]);
    expect(bench.errors).toHaveLength(1);
    // A driver that leaves them out, and tries them again later, gets the same answer again.
    for (const more of [{}, { taints }]) await bench.settle(() => publisher.publish(onePool(devices(4, more))));
    expect(bench.errors).toHaveLength(2);
  });
});
