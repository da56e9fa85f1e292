import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createPlugin, type PluginHandlers } from '../../../nri/index.ts';
import { encodeMuxHeader, MuxFrameDecoder } from '../../../nri/mux/frame.ts';
import { createTtrpcCodec, type TtrpcResponse } from '../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType, TtrpcFrameDecoder } from '../../../nri/ttrpc/frame.ts';
import { createNriCodec, pluginService } from '../../../nri/wire.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const ttrpc = createTtrpcCodec();
const nri = createNriCodec();

/** A request as a runtime sends it. */
function request(method: string, payload: Uint8Array, streamId = 1): Buffer {
  const data = ttrpc.request.encode({ service: pluginService, method, payload });
  const frame = encodeTtrpcFrame({ streamId, type: FrameType.request, data });
  return Buffer.concat([encodeMuxHeader(1, frame.length), frame]);
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
  const backoff = { initialMs: 10, dialMaxMs: 20, maxMs: 20 };
  const plugin = createPlugin({ name: 'test', index: '10', handlers, socketPath: path, backoff });
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
  return { socket, answers, leave };
}

describe('a plugin with a hostile runtime', () => {
  it('accepts names that are not valid UTF-8, and replaces the invalid bytes', async () => {
    const names: string[] = [];
    const { socket, answers, leave } = await meet({ runPodSandbox: ({ name }) => void names.push(name) });
    const payload = nri.podSandboxRequest.encode({ pod: { id: 'sandbox-1', name: 'a??b' } });
    socket.write(request('RunPodSandbox', Buffer.from(payload.toString('latin1').replace('??', '\xc3\x28'), 'latin1')));
    await expect.poll(() => answers().size).toBe(1);
    expect(answers().get(1)?.status).toBeUndefined();
    expect(names).toEqual(['a\ufffd(b']);
    await leave();
  });

  it('rejects a list of millions of pods before allocating memory for them', async () => {
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
