import { describe, expect, it } from 'vitest';
import { encodeMuxHeader, MuxFrameDecoder } from '../../../nri/mux/frame.ts';
import type { MessageCodec } from '../../../nri/proto.ts';
import { createTtrpcCodec } from '../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType, type TtrpcFrame, TtrpcFrameDecoder } from '../../../nri/ttrpc/frame.ts';
import { createNriCodec } from '../../../nri/wire.ts';
import { readVectors, type Vector } from './support.ts';

const ttrpc = createTtrpcCodec();
const nri = createNriCodec();

const requests: Record<string, MessageCodec<object>> = {
  RegisterPlugin: nri.registerPluginRequest,
  Configure: nri.configureRequest,
  Synchronize: nri.synchronizeRequest,
  StateChange: nri.stateChangeEvent,
  RunPodSandbox: nri.podSandboxRequest,
  StopPodSandbox: nri.podSandboxRequest,
  RemovePodSandbox: nri.podSandboxRequest,
};
const responses: Record<string, MessageCodec<object>> = {
  Configure: nri.configureResponse,
  Synchronize: nri.synchronizeResponse,
};

/** Takes a captured multiplexer frame apart down to the innermost message and puts it together again. */
function reencode(vector: Vector): { bytes: Buffer; message: object; frame: TtrpcFrame } {
  const frame = readFrame(Buffer.from(vector.hex, 'hex'));
  const isRequest = frame.type === FrameType.request;
  const envelope = isRequest ? ttrpc.request : ttrpc.response;
  const outer = envelope.decode(frame.data) as { payload?: Uint8Array };
  const codec = (isRequest ? requests : responses)[vector.method];
  let message: object = {};
  if (outer.payload !== undefined && codec !== undefined) {
    message = codec.decode(Buffer.from(outer.payload));
    outer.payload = codec.encode(message);
  }
  const inner = encodeTtrpcFrame({ ...frame, data: (envelope as MessageCodec<object>).encode(outer) });
  return { bytes: Buffer.concat([encodeMuxHeader(vector.connId, inner.length), inner]), message, frame };
}

function readFrame(bytes: Buffer): TtrpcFrame {
  const frames: TtrpcFrame[] = [];
  const inner = new TtrpcFrameDecoder();
  new MuxFrameDecoder().push(bytes, ({ payload }) => inner.push(payload, (next) => frames.push(next as TtrpcFrame)));
  expect(frames).toHaveLength(1);
  return frames[0] as TtrpcFrame;
}

const captures = Object.entries(readVectors()).flatMap(([version, list]) =>
  list.map((vector, number) => ({ version, number, ...vector })),
);

describe('NRI traffic captured from the Go implementation', () => {
  it('has 24 messages in the fixture', () => expect(captures).toHaveLength(24));

  it.each(captures)('$version #$number $dir $method encodes to the same bytes', (vector) => {
    const { bytes, frame } = reencode(vector);
    expect({ ...frame, data: frame.data.length }).toEqual({
      streamId: vector.ttrpc.streamId,
      type: vector.ttrpc.type,
      flags: vector.ttrpc.flags,
      data: vector.ttrpc.dataLen,
    });
    expect(bytes.toString('hex')).toBe(vector.hex);
  });
});
