import { PassThrough } from 'node:stream';
import { Client, credentials, status } from '@grpc/grpc-js';
import { describe, expect, it } from 'vitest';
import { HealthBoard } from '../../../../src/framework/kubeletplugin/health.ts';
import { createHealthService } from '../../../../src/framework/kubeletplugin/health-service.ts';
import type { DeviceHealth } from '../../../../src/framework/kubeletplugin/index.ts';
import { startKubeletPlugin } from '../../../../src/framework/kubeletplugin/index.ts';
import { HealthWatch } from '../../../doubles/kubelet-health.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { Bench, startBench, testPlugin } from './bench.ts';

const device = (deviceName: string, more: Partial<DeviceHealth> = {}): DeviceHealth => ({
  poolName: 'node-1',
  deviceName,
  health: 'healthy',
  ...more,
});

/** A kubelet that watches health, and a driver that reports it. */
async function startHealthBench() {
  const bench = await Bench.start({ watchHealth: true, healthReconnectMs: 20 });
  const helper = await bench.startHelper({}, { health: true });
  const watch = bench.kubelet.plugins(testDriver)[0]?.health;
  if (watch === undefined) throw new Error('the kubelet does not watch');
  return Object.assign(bench, { helper, watch });
}

describe('setHealth', () => {
  it('sends the complete list when the kubelet connects, and after each change (requirement 2.4)', async () => {
    await using bench = await startHealthBench();
    bench.helper.setHealth([device('a'), device('b', { health: 'unhealthy', message: 'link is down' })]);
    await bench.kubelet.until(() => bench.watch.received.length >= 1);
    expect(bench.watch.health('node-1', 'a')).toEqual({ health: 'Healthy', message: '' });
    expect(bench.watch.health('node-1', 'b')).toEqual({ health: 'Unhealthy', message: 'link is down' });
    bench.helper.setHealth([device('a', { health: 'unknown' }), device('b')]);
    await bench.kubelet.until(() => bench.watch.received.length >= 2);
    expect(bench.watch.health('node-1', 'a').health).toBe('Unknown');
    expect(bench.watch.health('node-1', 'b').health).toBe('Healthy');
    // Another one that comes late hears all of it, too.
    const services = ['v1.DRAResourceHealth'];
    using late = new HealthWatch({ endpoint: bench.helper.sockets.dra, services });
    await expect.poll(() => late.received).toHaveLength(1);
    expect(late.received[0]).toHaveLength(2);
  });

  it('sends nothing before the first report of the driver, and an empty list for an empty report', async () => {
    await using bench = await startHealthBench();
    await expect.poll(() => bench.watch.opened).toBe(1);
    expect(bench.watch.received).toEqual([]);
    bench.helper.setHealth([]);
    await expect.poll(() => bench.watch.received).toEqual([[]]);
  });

  it('sends the same reports by v1alpha1, for kubelets before 1.37 (requirement 2.4)', async () => {
    await using bench = await startHealthBench();
    bench.helper.setHealth([device('a', { message: 'fine' })]);
    using old = new HealthWatch({ endpoint: bench.helper.sockets.dra, services: ['v1alpha1.DRAResourceHealth'] });
    await expect.poll(() => old.health('node-1', 'a')).toEqual({ health: 'Healthy', message: 'fine' });
  });

  it('sends Unknown when a report expires, and does not repeat an unchanged report', async () => {
    await using bench = await startHealthBench();
    bench.helper.setHealth([device('a', { timeoutSeconds: 1 }), device('b')]);
    await bench.kubelet.until(() => bench.watch.received.length >= 1);
    await bench.kubelet.until(() => bench.watch.received.length >= 2);
    expect(bench.watch.received[1]).toMatchObject([
      { health: 'UNKNOWN', message: expect.stringContaining('not checked since ') },
      { health: 'HEALTHY' },
    ]);
    // A driver that checks again has its report sent again, although it is the same.
    bench.helper.setHealth([device('a', { timeoutSeconds: 1 }), device('b')]);
    await bench.kubelet.until(() => bench.watch.received.length >= 3);
    expect(bench.watch.received[2]).toMatchObject([{ health: 'HEALTHY' }, { health: 'HEALTHY' }]);
  });

  it('sends nothing if a timer fires although the report has not expired by the wall clock', async () => {
    const clock = new ManualClock();
    // Timers follow the monotonic clock, reports the time of day, which is corrected: here it loses a millisecond.
    const board = new HealthBoard(() => new Date(clock.nowMs() < 1_000 ? clock.nowMs() : clock.nowMs() - 1));
    board.set([device('a', { timeoutSeconds: 1 })]);
    const stream = new PassThrough({ objectMode: true });
    const sent: { devices: { health: string }[] }[] = [];
    stream.on('data', (list) => sent.push(list));
    const stop = new AbortController();
    createHealthService('v1', {
      board,
      clock,
      signal: stop.signal,
      logger: new RecordingLogger(),
    }).handlers.NodeWatchResources(stream as never);
    await expect.poll(() => sent).toHaveLength(1);
    clock.advance(1_000);
    await expect.poll(() => clock.sleeping()).toEqual([1]);
    clock.advance(1);
    await expect.poll(() => sent.at(-1)?.devices).toMatchObject([{ health: 'UNKNOWN' }]);
    expect(sent).toHaveLength(2);
    stop.abort();
  });

  it('ends a stream that fails and logs the error, instead of ending the process', async () => {
    const clock = new ManualClock();
    const board = new HealthBoard();
    board.set([device('a')]);
    board.snapshot = () => {
      throw new Error('no such device');
    };
    const stream = new PassThrough({ objectMode: true });
    const logger = new RecordingLogger();
    const { signal } = new AbortController();
    createHealthService('v1', { board, clock, signal, logger }).handlers.NodeWatchResources(stream as never);
    await expect.poll(() => stream.writableEnded).toBe(true);
    expect(logger.messages('error')).toEqual(['sending device health to the kubelet failed']);
  });

  it('ends health streams when the driver stops, without waiting for them', async () => {
    await using bench = await startBench({}, { health: true, drainMs: 1_000 });
    bench.helper.setHealth([device('a')]);
    // A kubelet that does not look at the registration socket.
    using watch = new HealthWatch({ endpoint: bench.helper.sockets.dra, services: ['v1.DRAResourceHealth'] });
    await expect.poll(() => watch.received).toHaveLength(1);
    await bench.helper[Symbol.asyncDispose]();
    await expect.poll(() => watch.health('node-1', 'a').health).toBe('Unknown');
    expect(bench.logger.messages('warn')).toEqual([]);
  });

  it.each<[string, DeviceHealth[], RegExp]>([
    ['without a name', [device('')], /it has no pool or no name/],
    ['in an unknown state', [device('a', { health: 'fine' as never })], /node-1\/a is "fine"/],
    ['with timeout 0', [device('a', { timeoutSeconds: 0 })], /timeoutSeconds of node-1\/a is 0/],
    [
      'checked at an invalid time',
      [device('a', { checkedAt: new Date(Number.NaN) })],
      /checkedAt of node-1\/a is not a valid/,
    ],
    ['with an Error as message', [device('a', { message: new Error('link') as never })], /message is not a string/],
    [
      'with a number as pool name',
      [device('a', { poolName: 7 as never })],
      /poolName, deviceName or message is not a string/,
    ],
    ['that is null', [null as never], /it is not an object/],
    ['that occurs twice', [device('a'), device('a')], /device node-1\/a is listed twice/],
  ])('rejects a device %s, and keeps the earlier report', async (_what, devices, message) => {
    const board = new HealthBoard();
    board.set([device('kept')]);
    expect(() => board.set(devices)).toThrow(message);
    expect(board.snapshot()).toMatchObject([{ device: { deviceName: 'kept' } }]);
  });

  it('fails if the health service is not enabled', async () => {
    await using bench = await startBench();
    expect(() => bench.helper.setHealth([])).toThrow(
      expect.objectContaining({ code: 'health-invalid', hint: 'start the helper with the option health' }),
    );
  });
});

describe('the health service', () => {
  it('is registered after the DRA services, v1 before v1alpha1, and only if enabled (requirement 2.5)', async () => {
    await using bench = await Bench.start();
    await bench.startHelper({}, { health: true });
    await bench.startHelper({}, { driver: 'other.example' });
    const services = (driver: string) => bench.kubelet.plugins(driver)[0]?.services;
    expect(services(testDriver)).toEqual([
      'v1.DRAPlugin',
      'v1beta1.DRAPlugin',
      'v1.DRAResourceHealth',
      'v1alpha1.DRAResourceHealth',
    ]);
    expect(services('other.example')).toEqual(['v1.DRAPlugin', 'v1beta1.DRAPlugin']);
  });

  it('returns Unimplemented if not enabled, which the kubelet treats as final (requirement 2.5)', async () => {
    await using bench = await Bench.start();
    await using helper = await startKubeletPlugin(testPlugin({}), bench.options());
    using watch = new HealthWatch({ endpoint: helper.sockets.dra, services: ['v1.DRAResourceHealth'], reconnectMs: 1 });
    await expect.poll(() => watch.isGivenUp).toBe(true);
    expect(watch.opened).toBe(1);
    using stack = new DisposableStack();
    const client = stack.adopt(new Client(`unix:${helper.sockets.dra}`, credentials.createInsecure()), (each) =>
      each.close(),
    );
    const code = await new Promise((resolve) =>
      client
        .makeServerStreamRequest('/v1.DRAResourceHealth/NodeWatchResources', Buffer.from, String, Buffer.alloc(0))
        .on('error', ({ code }: { code?: number }) => resolve(code))
        .resume(),
    );
    expect(code).toBe(status.UNIMPLEMENTED);
  });
});

describe('HealthBoard', () => {
  it('uses unix seconds, the default or given timeout, and drops older states (requirement 2.4)', () => {
    let nowMs = 100_900;
    const board = new HealthBoard(() => new Date(nowMs));
    board.set([device('a'), device('b', { checkedAt: new Date(90_100), timeoutSeconds: 12 })]);
    const sent = (deviceName: string, health: string, checked: number, timeout: number, message = '') => ({
      device: { poolName: 'node-1', deviceName },
      health,
      lastUpdatedTime: checked,
      healthCheckTimeoutSeconds: timeout,
      message,
    });
    expect(board.snapshot()).toEqual([sent('a', 'HEALTHY', 100, 30), sent('b', 'HEALTHY', 90, 12)]);
    expect(board.expiresInMs()).toBe(1_200);
    nowMs += 1_200;
    const message = 'not checked since 1970-01-01T00:01:30.100Z: the driver may hang';
    expect(board.snapshot()).toEqual([sent('a', 'HEALTHY', 100, 30), sent('b', 'UNKNOWN', 90, 12, message)]);
    expect(board.expiresInMs()).toBe(28_800);
    nowMs += 28_800;
    expect(board.snapshot()).toMatchObject([{ health: 'UNKNOWN' }, { health: 'UNKNOWN' }]);
    expect(board.expiresInMs()).toBeUndefined();
  });

  it.each([
    ['x'.repeat(1024), 1024],
    ['x'.repeat(1025), 1024],
    ['ä'.repeat(600), 1023],
    ['😀'.repeat(300), 1023],
  ])('truncates a message to 1024 bytes between characters (requirement 2.4)', (message, bytes) => {
    const board = new HealthBoard();
    board.set([device('a', { message })]);
    const [sent] = board.snapshot() ?? [];
    expect(Buffer.byteLength(sent?.message ?? '')).toBe(bytes);
    expect(sent?.message).not.toContain('\ufffd');
    expect(sent?.message.endsWith('...')).toBe(message.length > 1024 || bytes < 1024);
  });

  it('copies the list that the driver passes, so that later changes have no effect', () => {
    const board = new HealthBoard();
    const list = [device('a')];
    board.set(list);
    list[0]!.health = 'unhealthy';
    expect(board.snapshot()).toMatchObject([{ health: 'HEALTHY' }]);
  });
});
