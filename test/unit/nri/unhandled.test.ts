import { describe, expect, it, onTestFinished } from 'vitest';
import { createPlugin, silentLogger, TtrpcClient } from '../../../nri/index.ts';
import { createTtrpcCodec } from '../../../nri/ttrpc/codec.ts';
import { stage, TestChannel, until } from './support.ts';

describe('whatever goes wrong', () => {
  it('is never an unhandled rejection', async () => {
    const unhandled: unknown[] = [];
    const listener = (reason: unknown) => void unhandled.push(reason);
    process.on('unhandledRejection', listener);
    onTestFinished(() => void process.off('unhandledRejection', listener));

    // Promises that no caller awaits.
    const nowhere = createPlugin({ name: 'a', index: '00', handlers: {}, socketPath: '/nowhere/nri.sock' });
    nowhere.start();
    nowhere.whenConnected();
    nowhere.whenConnected(AbortSignal.abort());
    const channel = new TestChannel();
    const client = new TtrpcClient(channel, { codec: createTtrpcCodec(), logger: silentLogger });
    client.call('s', 'm', Buffer.alloc(0), { timeoutMs: 1 });
    client.call('s', 'm', Buffer.alloc(0));
    channel.close(new Error('broken'));
    client.call('s', 'm', Buffer.alloc(0));

    // Handlers that fail after the runtime has disconnected.
    const fail = Promise.withResolvers<never>();
    fail.promise.catch(() => undefined);
    let entered = 0;
    const enter = () => {
      entered += 1;
      return fail.promise;
    };
    const { runtime, plugin, log } = await stage({ handlers: { synchronize: enter, runPodSandbox: enter } });
    await runtime.waitForPlugin('test');
    const run = runtime.runPodSandbox({ id: 'a' });
    await until(() => entered === 2);
    await runtime.stop();
    await run;
    await until(() => !plugin.connected);
    fail.reject(new Error('too late'));
    await plugin[Symbol.asyncDispose]();
    await nowhere[Symbol.asyncDispose]();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(unhandled).toEqual([]);
    expect(log.entries.map(({ message }) => message)).toContain('synchronize handler failed');
    expect(log.entries.map(({ message }) => message)).toContain('method ended after its call was over');
  });
});
