import { connect } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Method, Mux, silentLogger, TtrpcClient, TtrpcServer } from '../../../../nri/index.ts';
import { encodeMuxHeader } from '../../../../nri/mux/frame.ts';
import { type FakeRuntime, type FakeRuntimeOptions, startFakeRuntime } from '../../../../nri/testing.ts';
import { createTtrpcCodec } from '../../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType } from '../../../../nri/ttrpc/frame.ts';
import { createNriCodec, pluginService, runtimeService } from '../../../../nri/wire.ts';
import { recordingLogger, socketPath, until } from '../support.ts';

const codec = createTtrpcCodec();
const nri = createNriCodec();

/** A plugin without any of the care that ours takes. */
function connectRaw(path: string, methods: Record<string, Method>) {
  const socket = connect(path);
  const mux = new Mux(socket);
  onTestFinished(() => mux.close());
  const all = { Configure: () => ({ payload: nri.configureResponse.encode({ events: 7 }) }), Synchronize: () => ({}) };
  const services = new Map([[pluginService, new Map<string, Method>(Object.entries({ ...all, ...methods }))]]);
  new TtrpcServer(mux.open(1), services, { codec, logger: silentLogger });
  const client = new TtrpcClient(mux.open(2), { codec, logger: silentLogger });
  const register = (pluginName = 'raw', pluginIdx = '50') =>
    client.call(runtimeService, 'RegisterPlugin', nri.registerPluginRequest.encode({ pluginName, pluginIdx }));
  return { socket, mux, register, client };
}

async function start(options: Partial<FakeRuntimeOptions> = {}) {
  const path = socketPath();
  const log = recordingLogger();
  const runtime = await startFakeRuntime({ socketPath: path, logger: log, ...options });
  onTestFinished(() => runtime.stop());
  return { runtime, path, log };
}

async function registered(runtime: FakeRuntime, path: string, methods: Record<string, Method>) {
  const raw = connectRaw(path, methods);
  await raw.register();
  return { ...raw, fake: await runtime.waitForPlugin('raw') };
}

describe('FakeRuntime, like the Go code,', () => {
  it.each([
    { nriVersion: 'v0.8.0', events: 0x1800, accepted: false },
    { nriVersion: 'v0.8.0', events: 0x7ff, accepted: true },
    { nriVersion: 'v0.10.0', events: 0x1800, accepted: true },
    { nriVersion: 'v0.12.2', events: 0x4000, accepted: false },
  ])('on $nriVersion accepts the subscription $events: $accepted', async ({ nriVersion, events, accepted }) => {
    const { runtime, path } = await start({ nriVersion });
    const raw = connectRaw(path, { Configure: () => ({ payload: nri.configureResponse.encode({ events }) }) });
    raw.register();
    if (accepted) expect((await runtime.waitForPlugin('raw')).events).toBe(events);
    else await raw.mux.closed;
  });

  it('stops answering, without closing, after an undecodable request', async () => {
    const { runtime, path, log } = await start();
    const { mux, client, socket } = await registered(runtime, path, { StateChange: () => ({}) });
    const call = (timeoutMs: number) => client.call(runtimeService, 'Other', Buffer.alloc(9000), { timeoutMs });
    await expect(call(5000)).rejects.toMatchObject({ status: 12 });
    const request = encodeTtrpcFrame({ streamId: 99, type: FrameType.request, data: Buffer.alloc(4087) });
    socket.write(Buffer.concat([encodeMuxHeader(2, request.length), request]));
    await until(() => log.notable().length === 1);
    expect(log.notable()).toMatchObject([{ message: 'error receiving message' }]);
    await expect(call(100)).rejects.toMatchObject({ code: 'call-timeout' });
    // The other direction notices nothing.
    await runtime.runPodSandbox({ id: 'a' });
    expect(runtime.plugins).toHaveLength(1);
    mux.close();
  });
});
