import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createPlugin, type PluginHandlers } from '../../../nri/index.ts';
import { encodeMuxHeader, MuxFrameDecoder } from '../../../nri/mux/frame.ts';
import { startFakeRuntime } from '../../../nri/testing.ts';
import { createTtrpcCodec, type TtrpcResponse } from '../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType, TtrpcFrameDecoder } from '../../../nri/ttrpc/frame.ts';
import { createNriCodec, pluginService } from '../../../nri/wire.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const ttrpc = createTtrpcCodec();
const nri = createNriCodec();
const inMux = (payload: Uint8Array, connectionId = 1) =>
  Buffer.concat([encodeMuxHeader(connectionId, payload.length), payload]);
const header = (length: number) => {
  const bytes = Buffer.alloc(10);
  bytes.writeUInt32BE(length, 0);
  bytes.writeUInt32BE(1, 4);
  bytes.writeUInt8(FrameType.request, 8);
  return bytes;
};

/** A request as a runtime sends it. */
function request(method: string, payload: Uint8Array, streamId = 1): Buffer {
  const data = ttrpc.request.encode({ service: pluginService, method, payload });
  return inMux(encodeTtrpcFrame({ streamId, type: FrameType.request, data }));
}

/** The answers on connection 1, by stream. */
function answersIn(sent: Buffer): Map<number, TtrpcResponse> {
  const answers = new Map<number, TtrpcResponse>();
  const decoder = new TtrpcFrameDecoder();
  new MuxFrameDecoder().push(sent, ({ connectionId, payload }) => {
    if (connectionId !== 1) return;
    decoder.push(payload, (frame) => {
      if ('data' in frame) answers.set(frame.streamId, ttrpc.response.decode(frame.data));
    });
  });
  return answers;
}

/** A socket on which a server listens that is no runtime, and a plugin that connects to it. */
async function meet(handlers: PluginHandlers = {}) {
  const dir = tempDir();
  const path = join(dir.path, 'nri.sock');
  const connected = Promise.withResolvers<Socket>();
  const server = createServer(connected.resolve);
  await new Promise<void>((resolve) => server.listen(path, resolve));
  const logger = new RecordingLogger();
  const backoff = { initialMs: 10, dialMaxMs: 20, maxMs: 20 };
  const plugin = createPlugin({ name: 'test', index: '10', handlers, socketPath: path, logger, backoff });
  onTestFinished(async () => {
    await plugin[Symbol.asyncDispose]();
    dir[Symbol.dispose]();
  });
  plugin.start();
  const socket = await connected.promise;
  socket.on('error', () => undefined);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  const answers = () => answersIn(Buffer.concat(chunks));
  const leave = async () => {
    socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  };
  return { path, socket, logger, answers, leave };
}

describe('a plugin whose socket carries nonsense', () => {
  it.each([
    ['a frame that announces 4 GiB', Buffer.concat([encodeMuxHeader(1, 0xffffffff), Buffer.alloc(1000)])],
    [
      'a message that announces 4 GiB',
      Buffer.concat([inMux(header(0xffffffff)), ...Array(50).fill(inMux(Buffer.alloc(9000)))]),
    ],
    ['100,000 empty frames', Buffer.concat(Array(100_000).fill(encodeMuxHeader(1, 0)))],
    [
      'frames for connections that were never opened',
      Buffer.concat([0, 3, 0x7fffffff, 0xffffffff].map((id) => inMux(header(1), id))),
    ],
    [
      '10,000 messages of a type that does not exist',
      Buffer.concat(Array(10_000).fill(inMux(encodeTtrpcFrame({ streamId: 1, type: 200, data: Buffer.alloc(1) })))),
    ],
  ])('gets through %s, takes no memory for it, and serves the next runtime', async (_, bytes) => {
    const started: string[] = [];
    const { path, socket, leave } = await meet({ runPodSandbox: ({ id }) => void started.push(id) });
    const before = process.memoryUsage().arrayBuffers;
    await new Promise((resolve) => socket.write(bytes, resolve));
    await leave();
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(24 * 2 ** 20);
    await using runtime = await startFakeRuntime({ socketPath: path });
    await expect.poll(() => runtime.plugins.length, { timeout: 10_000 }).toBe(1);
    await runtime.runPodSandbox({ id: 'sandbox-1' });
    expect(started).toEqual(['sandbox-1']);
  });

  it('takes names that are no UTF-8, with the bytes that are none replaced', async () => {
    const names: string[] = [];
    const { socket, answers, leave } = await meet({ runPodSandbox: ({ name }) => void names.push(name) });
    const payload = nri.podSandboxRequest.encode({ pod: { id: 'sandbox-1', name: 'a??b' } });
    socket.write(request('RunPodSandbox', Buffer.from(payload.toString('latin1').replace('??', '\xc3\x28'), 'latin1')));
    await expect.poll(() => answers().size).toBe(1);
    expect(answers().get(1)?.status).toBeUndefined();
    expect(names).toEqual(['a\ufffd(b']);
    await leave();
  });

  it('refuses a state of millions of pods before it takes memory for them', async () => {
    const { socket, answers, leave } = await meet({ synchronize: () => undefined });
    const empty = Buffer.alloc(4_000_000, Buffer.from([0x0a, 0x00]));
    globalThis.gc?.();
    const before = process.memoryUsage().heapUsed;
    socket.write(request('Synchronize', empty));
    await expect.poll(() => answers().size, { timeout: 10_000 }).toBe(1);
    expect(answers().get(1)?.status).toMatchObject({ code: 8, message: expect.stringContaining('to synchronize') });
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 2 ** 20);
    await leave();
  });
});
