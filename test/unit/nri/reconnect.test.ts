import { createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createPlugin, type PluginOptions } from '../../../nri/index.ts';
import { startFakeRuntime } from '../../../nri/testing.ts';
import { recordingLogger, socketPath, stage, until } from './support.ts';

const pluginAt = (socketPath: string, more: Partial<PluginOptions>) =>
  createPlugin({ name: 'test', index: '10', handlers: {}, socketPath, ...more });

it('a plugin without a runtime waits for the socket, and reports the failure once', async () => {
  const path = socketPath();
  const log = recordingLogger();
  await using plugin = pluginAt(path, { logger: log, backoff: { initialMs: 5, dialMaxMs: 10 } });
  plugin.start();
  plugin.start();
  const attempts = () => log.entries.filter(({ message }) => message === 'cannot connect to the runtime');
  await until(() => attempts().length >= 5);
  expect(attempts().filter(({ level }) => level === 'warn')).toMatchObject([
    { fields: { socket: path, err: { code: 'not-connected', hint: expect.stringContaining('NRI') } } },
  ]);
  await using runtime = await startFakeRuntime({ socketPath: path });
  await plugin.whenConnected();
  expect((await runtime.waitForPlugin('test')).index).toBe('10');
  expect(runtime.accepted).toBe(1);
});

it('a plugin whose runtime restarts resets its dial delay after each successful connection', async () => {
  // Without the reset the delays of all rounds would add up to 10 ms * 2^30.
  const { runtime, log } = await stage({ backoff: { initialMs: 10, dialMaxMs: 1e9, stableAfterMs: 0 } });
  const failures = () => log.entries.filter(({ message }) => message === 'cannot connect to the runtime').length;
  for (let round = 1; round <= 10; round += 1) {
    await runtime.waitForPlugin('test');
    const before = failures();
    await runtime.stop();
    await until(() => failures() === before + 3);
    await runtime.start();
  }
}, 10_000);

describe('a plugin that the runtime rejects', () => {
  it('reconnects with growing delays until it is disposed of', async () => {
    const path = socketPath();
    const arrivals: number[] = [];
    const server = createServer((socket) => {
      arrivals.push(performance.now());
      socket.on('error', () => undefined).destroy();
    });
    await new Promise<void>((resolve) => server.listen(path, resolve));
    onTestFinished(() => void server.close());
    const plugin = pluginAt(path, { backoff: { initialMs: 40, maxMs: 160, random: () => 0 } });
    plugin.start();
    await until(() => arrivals.length === 6);
    const gaps = arrivals.slice(1).map((time, index) => time - (arrivals[index] ?? 0));
    for (const [index, least] of [20, 40, 80, 80, 80].entries()) expect(gaps[index]).toBeGreaterThanOrEqual(least - 2);
    await plugin[Symbol.asyncDispose]();
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(arrivals.length).toBeLessThanOrEqual(7);
    const final = arrivals.length;
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(arrivals).toHaveLength(final);
  });

  it('resets the delay after a connection that lasted', async () => {
    const delays: number[] = [];
    const random = () => {
      delays.push(0);
      return 0;
    };
    const { runtime } = await stage({ backoff: { initialMs: 100, maxMs: 60_000, stableAfterMs: 0, random } });
    // Without the reset the delays add up to 100 s, more than the whole test may take.
    for (let round = 0; round < 12; round += 1) {
      const fake = await runtime.waitForPlugin('test');
      fake.close();
      await runtime.waitForLoss('test');
    }
    expect(delays.length).toBeGreaterThanOrEqual(11);
  });

  it('times out a registration without an answer', async () => {
    const path = socketPath();
    const server = createServer((socket) => socket.on('error', () => undefined).resume());
    await new Promise<void>((resolve) => server.listen(path, resolve));
    onTestFinished(() => void server.close());
    const log = recordingLogger();
    await using plugin = pluginAt(path, { logger: log, registrationTimeoutMs: 50 });
    plugin.start();
    const lost = () => log.entries.filter(({ message }) => message === 'lost the connection to the runtime');
    await until(() => lost().length === 1);
    expect(lost()).toMatchObject([
      {
        level: 'warn',
        fields: { registered: false, err: { code: 'registration-failed', cause: { code: 'call-timeout' } } },
      },
    ]);
  });
});
