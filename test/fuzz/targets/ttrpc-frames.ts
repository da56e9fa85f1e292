import { isDeepStrictEqual } from 'node:util';
import {
  encodeTtrpcFrame,
  maxDataBytes,
  type OversizeFrame,
  type TtrpcFrame,
  TtrpcFrameDecoder,
} from '../../../nri/ttrpc/frame.ts';
import { expectThat, type FuzzTarget } from '../target.ts';
import { capturedFrames, cutInPieces } from '../traffic.ts';

function decode(chunks: Uint8Array[]): (TtrpcFrame | OversizeFrame)[] {
  const decoder = new TtrpcFrameDecoder();
  const frames: (TtrpcFrame | OversizeFrame)[] = [];
  for (const chunk of chunks) decoder.push(chunk, (frame) => frames.push(frame));
  return frames;
}

/** Accepts any bytes, returns the same frames however they are split, and frames that encode to the original bytes. */
export const target: FuzzTarget = {
  name: 'ttrpc-frames',
  errors: [],
  seeds() {
    const frames = capturedFrames().map(({ payload }) => payload);
    const header = Buffer.alloc(10);
    header.writeUInt32BE(maxDataBytes + 1);
    return [Buffer.alloc(0), ...frames, Buffer.concat(frames.slice(0, 4)), Buffer.concat([header, ...frames])];
  },
  run(input) {
    const frames = decode([input]);
    expectThat(isDeepStrictEqual(frames, decode(cutInPieces(input))), 'other frames when the bytes come in pieces');
    let offset = 0;
    for (const frame of frames) {
      if ('oversizeBytes' in frame) {
        expectThat(frame.oversizeBytes > maxDataBytes, 'a frame was refused that is not too long');
        offset += 10 + frame.oversizeBytes;
        continue;
      }
      const encoded = encodeTtrpcFrame(frame);
      const came = input.subarray(offset, offset + encoded.length);
      expectThat(encoded.equals(came), 'a frame does not encode to the bytes that it came in');
      offset += encoded.length;
    }
  },
};
