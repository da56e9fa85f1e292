import { isDeepStrictEqual } from 'node:util';
import { NriError } from '../../../nri/errors.ts';
import { encodeMuxHeader, type MuxFrame, MuxFrameDecoder, muxHeaderBytes } from '../../../nri/mux/frame.ts';
import { expectThat, type FuzzTarget } from '../target.ts';
import { capturedTraffic, cutInPieces } from '../traffic.ts';

const maxPayloadBytes = 1024 * 1024;

function decode(chunks: Uint8Array[]): { frames: MuxFrame[]; error?: NriError } {
  const decoder = new MuxFrameDecoder(maxPayloadBytes);
  const frames: MuxFrame[] = [];
  try {
    for (const chunk of chunks) decoder.push(chunk, (frame) => frames.push(frame));
    return { frames };
  } catch (error) {
    if (error instanceof NriError) return { frames, error };
    throw error;
  }
}

/** Returns the same frames, and the same error, however the bytes are split; frames encode to the original bytes. */
export const target: FuzzTarget = {
  name: 'mux-frames',
  errors: [],
  seeds() {
    const traffic = capturedTraffic();
    const headers = [encodeMuxHeader(1, maxPayloadBytes + 1), encodeMuxHeader(2, 0)];
    return [Buffer.alloc(0), ...traffic, Buffer.concat(traffic), ...headers];
  },
  run(input) {
    const whole = decode([input]);
    const pieces = decode(cutInPieces(input));
    expectThat(isDeepStrictEqual(whole.frames, pieces.frames), 'other frames when the bytes come in pieces');
    expectThat(whole.error?.message === pieces.error?.message, 'another error when the bytes come in pieces');
    let offset = 0;
    for (const { connectionId, payload } of whole.frames) {
      const header = encodeMuxHeader(connectionId, payload.length);
      const end = offset + muxHeaderBytes + payload.length;
      const encoded = Buffer.concat([header, payload]);
      expectThat(encoded.equals(input.subarray(offset, end)), 'a frame does not encode to the bytes that it came in');
      offset = end;
    }
  },
};
