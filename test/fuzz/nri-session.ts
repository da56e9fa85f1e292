import { duplexPair } from 'node:stream';
import { NriError } from '../../nri/errors.ts';
import { silentLogger } from '../../nri/index.ts';
import { MuxConnection, MuxFrameDecoder } from '../../nri/mux/frame.ts';
import { Session } from '../../nri/session.ts';
import { createTtrpcCodec } from '../../nri/ttrpc/codec.ts';
import { FrameType, TtrpcFrameDecoder } from '../../nri/ttrpc/frame.ts';
import { createNriCodec } from '../../nri/wire.ts';
import { expectThat } from './target.ts';

export const ttrpc = createTtrpcCodec();
export const nri = createNriCodec();

/**
 * Feeds these bytes to a plugin's end of a connection. However the connection ends, only our own errors are allowed,
 * and the plugin's output must be well formed.
 */
export async function feedSession(chunks: Uint8Array[]): Promise<void> {
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
  const error = await session.closed;
  far.destroy();
  if (error !== undefined && !(error instanceof NriError)) throw error;
  checkSent(Buffer.concat(sent));
}

/** Allows only responses on connection 1 and requests on connection 2. */
function checkSent(sent: Buffer): void {
  const decoders = new Map<number, TtrpcFrameDecoder>();
  new MuxFrameDecoder().push(sent, ({ connectionId, payload }) => {
    const isAnswer = connectionId === MuxConnection.plugin;
    expectThat(isAnswer || connectionId === MuxConnection.runtime, `sent to connection ${connectionId}`);
    const decoder = decoders.get(connectionId) ?? new TtrpcFrameDecoder();
    decoders.set(connectionId, decoder);
    decoder.push(payload, (frame) => {
      expectThat('data' in frame, 'a frame was sent that is too long');
      expectThat(
        frame.type === (isAnswer ? FrameType.response : FrameType.request),
        'a frame of a wrong type was sent',
      );
      (isAnswer ? ttrpc.response : ttrpc.request).decode(frame.data);
    });
  });
}
