import { duplexPair } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NriError, silentLogger } from '../../../nri/index.ts';
import { encodeMuxHeader, MuxFrameDecoder } from '../../../nri/mux/frame.ts';
import { Session } from '../../../nri/session.ts';
import { createTtrpcCodec } from '../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType, TtrpcFrameDecoder } from '../../../nri/ttrpc/frame.ts';
import { createNriCodec, pluginService } from '../../../nri/wire.ts';
import { cutAt, readVectors } from './support.ts';

const ttrpc = createTtrpcCodec();
const nri = createNriCodec();
const captured = Object.values(readVectors()).flatMap((list) => list.map(({ hex }) => Buffer.from(hex, 'hex')));

/** Feeds this to a plugin's end of a connection and says how it ended and what the plugin sent. */
async function feed(chunks: Buffer[]): Promise<{ error: Error | undefined; sent: Buffer }> {
  const [near, far] = duplexPair();
  const sent: Buffer[] = [];
  far.on('data', (chunk: Buffer) => sent.push(chunk));
  far.on('error', () => undefined);
  const session = new Session(near, {
    name: 'fuzzed',
    index: '10',
    ttrpc,
    nri,
    logger: silentLogger,
    registrationTimeoutMs: 1000,
    syncPatienceMs: 10_000,
    answerBeforeDeadlineMs: 100,
    launched: false,
    onReady: () => undefined,
    handlers: { synchronize: () => undefined, runPodSandbox: () => undefined, stopPodSandbox: () => undefined },
  });
  for (const chunk of chunks) far.write(chunk);
  far.end();
  return { error: await session.closed, sent: Buffer.concat(sent) };
}

/** Whatever came in: what goes out is well-formed, and only our own errors come up. */
async function check(chunks: Buffer[]): Promise<void> {
  const { error, sent } = await feed(chunks);
  if (error !== undefined) expect(error).toBeInstanceOf(NriError);
  const inner = new Map<number, TtrpcFrameDecoder>();
  new MuxFrameDecoder().push(sent, ({ connectionId, payload }) => {
    expect([1, 2]).toContain(connectionId);
    const decoder = inner.get(connectionId) ?? new TtrpcFrameDecoder();
    inner.set(connectionId, decoder);
    decoder.push(payload, (frame) => {
      expect(frame).toMatchObject({ type: connectionId === 1 ? FrameType.response : FrameType.request, flags: 0 });
      if (connectionId === 1 && 'data' in frame) ttrpc.response.decode(frame.data);
    });
  });
}

const bytes = (maxLength: number) => fc.uint8Array({ maxLength }).map((array) => Buffer.from(array));
const inMux = (payload: Buffer, connectionId: number) =>
  Buffer.concat([encodeMuxHeader(connectionId, payload.length), payload]);
const connectionId = fc.constantFrom(0, 1, 1, 1, 2, 2, 3);

const noise = bytes(100);
const framedNoise = fc.tuple(bytes(60), connectionId).map(([payload, id]) => inMux(payload, id));
const ttrpcNoise = fc
  .tuple(fc.nat({ max: 12 }), fc.nat({ max: 5 }), fc.nat({ max: 4 }), bytes(60), connectionId)
  .map(([streamId, type, flags, data, id]) => inMux(encodeTtrpcFrame({ streamId, type, flags, data }), id));
const method = fc.constantFrom(
  'Configure',
  'Synchronize',
  'RunPodSandbox',
  'StateChange',
  'Shutdown',
  'constructor',
  '',
);
const callNoise = fc
  .tuple(fc.nat({ max: 30 }), method, bytes(60), fc.integer({ min: -5, max: 5_000_000 }))
  .map(([streamId, name, payload, timeoutNano]) => {
    const data = ttrpc.request.encode({ service: pluginService, method: name, payload, timeoutNano });
    return inMux(encodeTtrpcFrame({ streamId, type: FrameType.request, data }), 1);
  });
const damaged = fc
  .tuple(fc.constantFrom(...captured), fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 3 }))
  .map(([frame, changes]) => {
    const copy = Buffer.from(frame);
    for (const [offset, byte] of changes) copy[offset % copy.length] = byte;
    return copy;
  });

describe('a connection that carries nonsense', () => {
  it('ends in peace or with our own error, and never hangs', async () => {
    const message = fc.oneof(framedNoise, ttrpcNoise, callNoise, damaged, noise);
    await fc.assert(
      fc.asyncProperty(
        fc.array(message, { maxLength: 12 }),
        fc.array(fc.nat({ max: 5000 }), { maxLength: 5 }),
        async (messages, cuts) => check(cutAt(Buffer.concat(messages), cuts)),
      ),
      { numRuns: 500 },
    );
  });

  it('is told from one that carries something else right at its beginning', async () => {
    expect((await feed([Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')])).error).toMatchObject({
      code: 'mux-frame-too-long',
    });
  });
});
