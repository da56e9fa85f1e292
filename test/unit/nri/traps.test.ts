import { describe, expect, it } from 'vitest';
import {
  Mux,
  type PluginHandlers,
  type PodSandbox,
  silentLogger,
  TtrpcClient,
  TtrpcServer,
} from '../../../nri/index.ts';
import { PluginService } from '../../../nri/plugin-service.ts';
import type { Channel } from '../../../nri/ttrpc/channel.ts';
import { createTtrpcCodec } from '../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType } from '../../../nri/ttrpc/frame.ts';
import { createNriCodec, pluginService } from '../../../nri/wire.ts';
import { socketPair, stage, TestChannel, until } from './support.ts';

const ttrpc = createTtrpcCodec();
const nri = createNriCodec();
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Traps of the protocol that were found on real runtimes, by their number in our notes, on the whole stub. Those that a
 * real runtime shows are in `e2e/neighbours`.
 */
describe('frames of any size from a runtime', () => {
  /** Sends each ttrpc frame in multiplexer frames of these lengths, the last one with the rest. */
  function cutting(inner: Channel, lengths: number[]): Channel {
    return {
      ...inner,
      send(frame) {
        let start = 0;
        for (const length of lengths) {
          inner.send(frame.subarray(start, start + length));
          start += length;
        }
        if (start < frame.length) inner.send(frame.subarray(start));
      },
    };
  }

  it.each([
    { peer: 'Rust, which writes the fields of the header one by one', lengths: [4, 4, 1, 1] },
    { peer: 'Go', lengths: [] },
    { peer: 'a hostile peer', lengths: [1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 200, 1] },
  ])('are decoded from $peer', async ({ lengths }) => {
    const [near, far] = await socketPair();
    const pods: string[] = [];
    const handlers = { runPodSandbox: (pod: PodSandbox) => void pods.push(pod.id) };
    const { signal } = new AbortController();
    const nothing = { logger: silentLogger, launched: false, signal, onReady: () => undefined };
    const service = new PluginService({ codec: nri, handlers, ...nothing });
    new TtrpcServer(new Mux(near).open(1), service.services, { codec: ttrpc, logger: silentLogger });
    const client = new TtrpcClient(cutting(new Mux(far).open(1), lengths), { codec: ttrpc, logger: silentLogger });
    for (const length of [1, 5000, 3_000_000]) {
      const pod = { id: 'p', annotations: { long: 'x'.repeat(length) } };
      await client.call(pluginService, 'RunPodSandbox', nri.podSandboxRequest.encode({ pod }));
    }
    expect(pods).toEqual(['p', 'p', 'p']);
  });
});

describe('a Synchronize request', () => {
  it('is answered before its handler runs', async () => {
    const channel = new TestChannel();
    const sentBefore: number[] = [];
    const service = new PluginService({
      codec: nri,
      handlers: { synchronize: () => void sentBefore.push(channel.sent.length) },
      logger: silentLogger,
      launched: false,
      signal: new AbortController().signal,
      onReady: () => sentBefore.push(channel.sent.length),
    });
    new TtrpcServer(channel, service.services, { codec: ttrpc, logger: silentLogger });
    const request = ttrpc.request.encode({ service: pluginService, method: 'Synchronize' });
    channel.arrive(encodeTtrpcFrame({ streamId: 1, type: FrameType.request, data: request }));
    await until(() => sentBefore.length === 2);
    expect(sentBefore).toEqual([1, 1]);
  });
});

describe('a plugin whose runtime sends Configure before it answers the registration', () => {
  it('connects normally', async () => {
    const { runtime, plugin } = await stage({}, { configureFirst: true });
    await runtime.waitForPlugin('test');
    expect(plugin.connected).toBe(true);
    expect(runtime.accepted).toBe(1);
  });
});

describe('a plugin with a busy handler', () => {
  it('keeps reading, however much arrives', async () => {
    const release = Promise.withResolvers<void>();
    let atWork = 0;
    const runPodSandbox = () => {
      atWork += 1;
      return release.promise;
    };
    const { runtime } = await stage(
      { handlers: { runPodSandbox } },
      { nriVersion: 'v0.12.2', requestTimeoutMs: 10_000 },
    );
    const fake = await runtime.waitForPlugin('test');
    const busy = runtime.runPodSandbox({ id: 'busy' });
    await until(() => atWork === 1);
    const pod = nri.podSandboxRequest.encode({ pod: { id: 'x', annotations: { long: 'x'.repeat(250_000) } } });
    const others = Array.from({ length: 80 }, () => fake.call('RunPodSandbox', pod).catch((error: Error) => error));
    // 64 may be at work at once, the busy one included; 20 MB have been read when the others are refused.
    const refused = await Promise.all(others.slice(63));
    expect(refused).toHaveLength(17);
    for (const error of refused) expect(error).toMatchObject({ status: 8 });
    await expect(fake.call('Unknown', Buffer.alloc(0))).rejects.toMatchObject({ status: 12 });
    release.resolve();
    await busy;
    for (const answer of await Promise.all(others.slice(0, 63))) expect(answer).toHaveLength(0);
  });
});

describe('a plugin of a restarted containerd, which does not announce its running pods', () => {
  it('delivers stop and remove events of pods whose run event it never got', async () => {
    const events: string[] = [];
    const on = (name: string) => (pod: PodSandbox) => void events.push(`${name} ${pod.id}`);
    const { runtime } = await stage(
      { handlers: { runPodSandbox: on('run'), stopPodSandbox: on('stop'), removePodSandbox: on('remove') } },
      { name: 'cri-o', pods: [{ id: 'old' }] },
    );
    await runtime.waitForPlugin('test');
    await runtime.stopPodSandbox({ id: 'old' });
    await runtime.removePodSandbox({ id: 'old' });
    await runtime.removePodSandbox({ id: 'never seen' });
    await runtime.runPodSandbox({ id: 'new' });
    await runtime.removePodSandbox({ id: 'new' });
    expect(events).toEqual(['stop old', 'remove old', 'remove never seen', 'run new', 'remove new']);
  });
});

describe('a plugin that registers while a long pod stop blocks the runtime', () => {
  it('waits on one connection as long as necessary', async () => {
    const limits = { registrationTimeoutMs: 250, requestTimeoutMs: 250 };
    const { runtime, plugin, log } = await stage({ registrationTimeoutMs: 250, syncPatienceMs: 250 }, limits);
    const warnings = () => log.entries.filter(({ message }) => message === 'the runtime has not sent Synchronize yet');
    await runtime.waitForPlugin('test');
    await pause(300);
    expect(warnings()).toEqual([]);
    const block = runtime.blockSync();
    await runtime.restart();
    await until(() => runtime.accepted === 2);
    await pause(700);
    expect([plugin.connected, runtime.accepted]).toEqual([false, 2]);
    expect(warnings()).toMatchObject([
      { level: 'warn', fields: { waitedMs: 250, hint: expect.stringContaining('stuck') } },
    ]);
    block[Symbol.dispose]();
    await runtime.waitForPlugin('test');
    expect([plugin.connected, runtime.accepted]).toEqual([true, 2]);
  });
});

describe('a plugin for a runtime that rejects subscriptions to unknown events', () => {
  it.each([
    { handlers: {}, events: 4 },
    { handlers: { runPodSandbox() {} }, events: 1 },
    { handlers: { runPodSandbox() {}, stopPodSandbox() {} }, events: 3 },
  ] satisfies { handlers: PluginHandlers; events: number }[])(
    'subscribes only to $events at the oldest and the newest runtime',
    async ({ handlers, events }) => {
      for (const nriVersion of [undefined, 'v0.12.2']) {
        const { runtime } = await stage({ handlers }, { nriVersion });
        expect((await runtime.waitForPlugin('test')).events).toBe(events);
        await runtime.runPodSandbox({ id: 'a' });
        await runtime.stopPodSandbox({ id: 'a' });
        await runtime.removePodSandbox({ id: 'a' });
        expect(runtime.plugins).toHaveLength(1);
      }
    },
  );
});
