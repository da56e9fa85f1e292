import { describe, expect, it } from 'vitest';
import {
  type CallContext,
  type ContainerAdjustment,
  createPlugin,
  type NriError,
  type PluginHandlers,
  type PluginOptions,
  type PodSandbox,
  TtrpcError,
} from '../../../nri/index.ts';
import type { PodInput } from '../../../nri/testing.ts';
import { createNriCodec } from '../../../nri/wire.ts';
import { stage, until } from './support.ts';

const pod: PodInput = {
  id: 'sandbox-1',
  name: 'web',
  uid: 'uid-1',
  namespace: 'default',
  annotations: { 'a/b': 'c' },
  namespaces: [{ type: 'network', path: '/var/run/netns/cni-1' }],
};

it.each([
  { name: '' },
  { name: 'a b' },
  { name: 'ü' },
  { name: 'a/b' },
  { index: '1' },
  { index: '100' },
  { index: 'ab' },
  { index: '1 ' },
] satisfies Partial<PluginOptions>[])('createPlugin rejects %o', (options) => {
  expect(() => createPlugin({ name: 'a', index: '00', handlers: {}, ...options })).toThrow(
    expect.objectContaining({ code: 'bad-option' }),
  );
});

it.each([
  ['a misspelled handler', { runPodSandBox: () => undefined }, 'handlers: "runPodSandBox" is not an event'],
  ['a handler that is not a function', { stopPodSandbox: 'log' }, 'handlers: stopPodSandbox is not a function'],
  ['no handlers', undefined, 'handlers: is not an object'],
])('createPlugin rejects %s', (_what, handlers, message) => {
  const create = () => createPlugin({ name: 'a', index: '00', handlers: handlers as PluginHandlers });
  expect(create).toThrow(expect.objectContaining({ code: 'bad-option', message: expect.stringContaining(message) }));
});

it('an error of a handler whose event needs no answer is logged', async () => {
  const { runtime, log } = await stage({ handlers: { connected: async () => expect.fail('no metrics') } });
  await runtime.waitForPlugin('test');
  await until(() => log.entries.some(({ level }) => level === 'error'));
  expect(log.entries.filter(({ level }) => level === 'error')).toMatchObject([{ message: 'handler failed' }]);
});

describe.each([
  {
    style: 'a method for each event',
    nriVersion: 'v0.12.2',
    methods: ['RunPodSandbox', 'StopPodSandbox', 'RemovePodSandbox'],
  },
  { style: 'StateChange', nriVersion: 'v0.8.0', methods: ['StateChange', 'StateChange', 'StateChange'] },
  {
    style: 'StateChange and no timeouts',
    nriVersion: undefined,
    methods: ['StateChange', 'StateChange', 'StateChange'],
  },
])('a plugin and a runtime with $style', ({ nriVersion, methods }) => {
  it('a plugin passes each event with its pod and deadline to the handler', async () => {
    const events: [string, PodSandbox, CallContext][] = [];
    const on = (name: string) => (seen: PodSandbox, context: CallContext) => void events.push([name, seen, context]);
    const { runtime } = await stage(
      { handlers: { runPodSandbox: on('run'), stopPodSandbox: on('stop'), removePodSandbox: on('remove') } },
      { nriVersion },
    );
    const fake = await runtime.waitForPlugin('test');
    await runtime.runPodSandbox(pod);
    await runtime.stopPodSandbox(pod);
    await runtime.removePodSandbox(pod);
    expect(events.map(([name, seen]) => [name, seen.id])).toEqual([
      ['run', 'sandbox-1'],
      ['stop', 'sandbox-1'],
      ['remove', 'sandbox-1'],
    ]);
    expect(events[0]?.[1]).toMatchObject({ ...pod, labels: {}, ips: [], pid: 0 });
    expect(events[0]?.[2]).toMatchObject({ timeoutMs: 2000, signal: { aborted: false } });
    expect(fake.calls).toEqual(['Configure', 'Synchronize', ...methods]);
    expect(fake.events).toBe(7);
  });

  it('a plugin lets a handler choose the status of its error, but sends 2 instead of 12 (Unimplemented)', async () => {
    const { runtime } = await stage(
      {
        handlers: {
          runPodSandbox: (seen) => {
            throw new TtrpcError(seen.pid, 'chosen');
          },
        },
      },
      { nriVersion },
    );
    const fake = await runtime.waitForPlugin('test');
    await expect(runtime.runPodSandbox({ id: 'a', pid: 9 })).rejects.toMatchObject({ status: 9 });
    await expect(runtime.runPodSandbox({ id: 'b', pid: 12 })).rejects.toMatchObject({ status: 2, message: 'chosen' });
    await expect(runtime.runPodSandbox({ id: 'c', pid: 9 })).rejects.toMatchObject({ status: 9 });
    expect(fake.calls.slice(2).map((call) => call.split(':')[0])).toEqual([methods[0], methods[0], methods[0]]);
  });
});

describe('a connected plugin', () => {
  it('assumes default time limits for runtimes that report none', async () => {
    const { plugin } = await stage({}, { nriVersion: undefined });
    expect(await plugin.whenConnected()).toMatchObject({
      nriVersion: undefined,
      registrationTimeoutMs: 5000,
      requestTimeoutMs: 2000,
    });
  });

  it('answers unsubscribed events with success, and unknown methods with "unimplemented"', async () => {
    const { runtime } = await stage({ handlers: { runPodSandbox: () => undefined } }, { nriVersion: 'v0.12.2' });
    const fake = await runtime.waitForPlugin('test');
    expect(fake.events).toBe(1);
    const call = (method: string, ...bytes: number[]) => fake.call(method, Buffer.from(bytes));
    for (const event of [2, 3, 4, 7, 14, 99]) await call('StateChange', 0x08, event);
    for (const method of ['StopPodSandbox', 'RemovePodSandbox', 'Shutdown']) await call(method);
    for (const method of [
      'UpdatePodSandbox',
      'PostUpdatePodSandbox',
      'PostCreateContainer',
      'StartContainer',
      'PostStartContainer',
      'UpdateContainer',
      'PostUpdateContainer',
      'StopContainer',
      'RemoveContainer',
      'ValidateContainerAdjustment',
      'SomethingNew',
    ]) {
      await expect(call(method)).rejects.toMatchObject({ status: 12, message: `method ${method}` });
    }
    await runtime.runPodSandbox(pod);
    expect(fake.calls.at(-1)).toBe('RunPodSandbox');
  });

  it('rejects an undecodable message, and a message without a pod', async () => {
    const { runtime } = await stage({ handlers: { runPodSandbox: () => undefined } }, { nriVersion: 'v0.12.2' });
    const fake = await runtime.waitForPlugin('test');
    await expect(fake.call('RunPodSandbox', Buffer.from([0xff]))).rejects.toMatchObject({ status: 13 });
    await expect(fake.call('RunPodSandbox', Buffer.alloc(0))).rejects.toMatchObject({ status: 3 });
    await runtime.runPodSandbox(pod);
  });

  it("passes a handler's variables and mounts for a new container to the runtime", async () => {
    const env = [{ name: 'NIC', value: '0000:3b:02.1' }];
    const mounts = [{ destination: '/in', source: '/on/host', type: 'bind', options: ['ro', 'bind'] }];
    const { runtime } = await stage({
      handlers: { createContainer: (_, { name }) => (name === 'setup' ? { env, mounts } : undefined) },
    });
    await runtime.waitForPlugin('test');
    expect(await runtime.createContainer(pod, { id: 'a', name: 'setup' })).toEqual([{ env, mounts }]);
    expect(await runtime.createContainer(pod, { id: 'b', name: 'main' })).toEqual([]);
  });

  it('first removes the variables and mounts that it overrides, and then adds its own', async () => {
    const env = [{ name: 'NIC', value: 'a' }];
    const mounts = [{ destination: '/in', source: '/on/host', type: 'bind', options: [] }];
    const { runtime } = await stage({ handlers: { createContainer: () => ({ env, mounts, overrides: true }) } });
    const fake = await runtime.waitForPlugin('test');
    expect(await runtime.createContainer(pod, { id: 'a' })).toEqual([{ env, mounts, overrides: true }]);
    const answer = await fake.call('CreateContainer', Buffer.from([0x0a, 0x00, 0x12, 0x00]));
    const { adjust } = createNriCodec().createContainerResponse.decode(answer);
    expect(adjust?.env).toMatchObject([{ key: '-NIC' }, { key: 'NIC', value: 'a' }]);
    expect(adjust?.mounts).toMatchObject([{ destination: '-/in' }, { destination: '/in', source: '/on/host' }]);
  });

  it.each([
    ['a variable that would be removed', { env: [{ name: '-X', value: 'x' }] }, 'variable "-X", whose leading "-"'],
    ['a variable without a name', { env: [{ name: '', value: 'x' }] }, '"" as name of a variable'],
    ['half a UTF-16 character', { env: [{ name: 'A', value: 'x\ud83d' }] }, 'a value of variable "A" that is not text'],
    [
      'a relative mount',
      { mounts: [{ destination: 'in', source: '/a', type: 'bind', options: [] }] },
      '"in" as destination',
    ],
    [
      'a NUL',
      { mounts: [{ destination: '/in', source: '/a\0', type: 'bind', options: [] }] },
      'mount "/in" that is not text',
    ],
    ['text', 'str', 'not an object'],
    ['an empty text', '', 'not an object'],
    ['a number', 5, 'not an object'],
    ['a list', [], 'not an object'],
    ['true', true, 'not an object'],
    ['an unknown field', { environment: [] }, 'an unknown field environment'],
    ['variables as an object', { env: { NIC: 'a' } }, 'env that is not a list'],
    ['a variable that is text', { env: ['NIC=a'] }, 'env that is not a list'],
    ['mounts as an object', { mounts: {} }, 'mounts that is not a list'],
    [
      'a mount without options',
      { mounts: [{ destination: '/in', source: '/a', type: 'bind' }] },
      'options of mount "/in"',
    ],
    ['overrides as text', { overrides: 'yes' }, 'overrides that is not a boolean'],
  ])('rejects a container for which the handler returns %s', async (_what, answer, message) => {
    const { runtime } = await stage({ handlers: { createContainer: () => answer as ContainerAdjustment } });
    await runtime.waitForPlugin('test');
    await expect(runtime.createContainer(pod, { id: 'a', name: 'main' })).rejects.toThrow(message);
  });

  it("uses the runtime's time limit for a call without a deadline", async () => {
    const times: number[] = [];
    const { runtime } = await stage(
      { handlers: { runPodSandbox: (_, { timeoutMs }) => void times.push(timeoutMs) } },
      { nriVersion: 'v0.12.2', requestTimeoutMs: 700 },
    );
    const fake = await runtime.waitForPlugin('test');
    await fake.call('RunPodSandbox', Buffer.from([0x0a, 0x00]), 0).catch(() => undefined);
    await runtime.runPodSandbox(pod);
    await until(() => times.length === 2);
    expect(times).toEqual([700, 700]);
  });

  it.each([
    { nriVersion: 'v0.12.3', failurePolicy: { failRequest: true, keepConnected: true }, fails: false, isKept: false },
    { nriVersion: 'v0.12.4', failurePolicy: { failRequest: true, keepConnected: true }, fails: true, isKept: true },
    { nriVersion: 'v0.12.4', failurePolicy: { failRequest: true }, fails: true, isKept: false },
    { nriVersion: 'v0.13.0', failurePolicy: { keepConnected: true }, fails: false, isKept: true },
    { nriVersion: 'v0.13.0', fails: false, isKept: false },
  ])('applies its failure policy when a handler is late, if the runtime supports policies: %o', async (given) => {
    const { nriVersion, fails, isKept, ...policy } = given;
    const late = () => new Promise<void>(() => undefined);
    const { runtime } = await stage(
      { handlers: { runPodSandbox: late, createContainer: late }, answerBeforeDeadlineMs: 0, ...policy },
      { nriVersion, requestTimeoutMs: 30 },
    );
    const outcomes: string[] = [];
    for (const ask of [() => runtime.createContainer(pod, { id: 'app' }), () => runtime.runPodSandbox(pod)]) {
      const fake = await runtime.waitForPlugin('test');
      const answer = ask().then(() => 'goes on');
      outcomes.push(await answer.catch(({ code }: NriError) => code));
      if (isKept) expect(runtime.plugins).toContain(fake);
      else await fake.closed;
    }
    expect(outcomes).toEqual(fails ? ['event-failed', 'event-failed'] : ['goes on', 'goes on']);
  });

  it('loses its connection if its handler for Configure fails', async () => {
    const { runtime, log } = await stage({ handlers: { configure: () => Promise.reject(new Error('wrong runtime')) } });
    await until(() => log.entries.some(({ message }) => message === 'lost the connection to the runtime'));
    expect(runtime.plugins).toEqual([]);
    const failed = log.entries.find(({ message }) => message === 'configure handler failed');
    expect(failed).toMatchObject({ level: 'error', fields: { err: { message: 'wrong runtime' } } });
  });

  it('logs failures that it cannot report to the runtime', async () => {
    const fail = (what: string) => () => {
      throw new Error(what);
    };
    const { runtime, plugin, log } = await stage({
      handlers: {
        connected: fail('connected'),
        disconnected: fail('disconnected'),
        synchronize: () => Promise.reject(new Error('synchronize')),
      },
    });
    await runtime.waitForPlugin('test');
    await runtime.stop();
    await until(() => !plugin.connected);
    const errors = log.entries
      .filter(({ level }) => level === 'error')
      .map(({ fields }) => (fields.err as Error).message);
    expect(errors).toEqual(['connected', 'synchronize', 'disconnected']);
  });

  it('also calls handlers that are methods of a class', async () => {
    class Handlers {
      readonly pods: string[] = [];
      runPodSandbox(seen: PodSandbox): void {
        this.pods.push(seen.id);
      }
    }
    const handlers = new Handlers();
    const { runtime } = await stage({ handlers });
    expect((await runtime.waitForPlugin('test')).events).toBe(1);
    await runtime.runPodSandbox(pod);
    expect(handlers.pods).toEqual(['sandbox-1']);
  });
});

describe('disposing of a plugin', () => {
  it('lets a running handler answer first, since the runtime counts a closed connection as success', async () => {
    const release = Promise.withResolvers<void>();
    const started = Promise.withResolvers<void>();
    const { runtime, plugin } = await stage({
      handlers: {
        runPodSandbox: () => {
          started.resolve();
          return release.promise;
        },
      },
    });
    await runtime.waitForPlugin('test');
    const run = runtime.runPodSandbox(pod);
    await started.promise;
    const disposed = plugin[Symbol.asyncDispose]();
    release.reject(new Error('shutting down'));
    await expect(run).rejects.toMatchObject({ message: 'shutting down' });
    await disposed;
    await plugin.finished;
  });

  it('aborts handlers by their signal, waits a limited time, and can be repeated', async () => {
    let context: CallContext | undefined;
    const { runtime, plugin } = await stage(
      {
        handlers: {
          runPodSandbox: (_, given) => {
            context = given;
            return new Promise(() => undefined);
          },
        },
        disposeTimeoutMs: 30,
      },
      { requestTimeoutMs: 10_000 },
    );
    await runtime.waitForPlugin('test');
    const run = runtime.runPodSandbox(pod);
    await until(() => context !== undefined);
    const [first, second] = [plugin[Symbol.asyncDispose](), plugin[Symbol.asyncDispose]()];
    expect(first).toBe(second);
    await first;
    expect(context?.signal.aborted).toBe(true);
    expect(plugin.connected).toBe(false);
    await run;
    expect(() => plugin.start()).toThrow(expect.objectContaining({ code: 'connection-closed' }));
  });

  // If it did not wait, the handler of an older list would run beside that of the next connection, and its result could win.
  it('aborts the synchronize handler of a lost connection, and waits until that handler ends', async () => {
    const ended = Promise.withResolvers<void>();
    const signals: AbortSignal[] = [];
    const { runtime, plugin } = await stage({
      handlers: {
        async synchronize(_pods, _containers, { signal }) {
          if (signals.push(signal) === 1) await ended.promise;
        },
      },
      disposeTimeoutMs: 60_000,
    });
    await until(() => signals.length === 1);
    await runtime.restart();
    await until(() => signals.length === 2);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
    let isDisposed = false;
    const disposed = plugin[Symbol.asyncDispose]().then(() => {
      isDisposed = true;
    });
    await until(() => signals[1]?.aborted === true);
    expect(isDisposed).toBe(false);
    ended.resolve();
    await disposed;
  });

  it('waits until a running synchronization has ended', async () => {
    const release = Promise.withResolvers<void>();
    const { plugin } = await stage({ handlers: { synchronize: () => release.promise }, disposeTimeoutMs: 5000 });
    await plugin.whenConnected();
    let disposed = false;
    const done = plugin[Symbol.asyncDispose]().then(() => {
      disposed = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(disposed).toBe(false);
    release.resolve();
    await done;
  });

  it('ends at once if no runtime listens or the plugin was not started', async () => {
    for (const start of [true, false]) {
      const plugin = createPlugin({ name: 'a', index: '00', handlers: {}, socketPath: '/nowhere/nri.sock' });
      if (start) plugin.start();
      const waiting = plugin.whenConnected();
      await plugin[Symbol.asyncDispose]();
      await plugin.finished;
      await expect(waiting).rejects.toMatchObject({ code: 'connection-closed' });
    }
  });

  it('rejects promises that wait for a connection', async () => {
    await using plugin = createPlugin({ name: 'a', index: '00', handlers: {}, socketPath: '/nowhere/nri.sock' });
    const reason = new Error('enough');
    await expect(plugin.whenConnected(AbortSignal.abort(reason))).rejects.toBe(reason);
    const controller = new AbortController();
    const waiting = plugin.whenConnected(controller.signal);
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
  });
});
