import { readFileSync } from 'node:fs';
import { type MuxFrame, MuxFrameDecoder } from '../../nri/mux/frame.ts';
import { type TtrpcFrame, TtrpcFrameDecoder } from '../../nri/ttrpc/frame.ts';

interface Vectors {
  captures: Record<string, { hex: string }[]>;
}

/** Captured traffic between a real runtime and a plugin, by multiplexer frame. */
export function capturedTraffic(): Buffer[] {
  const text = readFileSync(new URL('../fixtures/nri-vectors.json', import.meta.url), 'utf8');
  const { captures } = JSON.parse(text) as Vectors;
  return Object.values(captures).flatMap((list) => list.map(({ hex }) => Buffer.from(hex, 'hex')));
}

/** The same, extracted from the multiplexer frames: whole ttrpc frames. */
export function capturedFrames(): MuxFrame[] {
  const frames: MuxFrame[] = [];
  new MuxFrameDecoder().push(Buffer.concat(capturedTraffic()), (frame) => frames.push(frame));
  return frames;
}

/** The same, extracted from the ttrpc frames too: encoded requests and responses. */
export function capturedMessages(): TtrpcFrame[] {
  const messages: TtrpcFrame[] = [];
  for (const { payload } of capturedFrames()) {
    new TtrpcFrameDecoder().push(payload, (frame) => {
      if ('data' in frame) messages.push(frame);
    });
  }
  return messages;
}

/** The bytes in pieces of up to `maxBytes`, whose lengths are derived from the bytes themselves. */
export function cutInPieces(bytes: Uint8Array, maxBytes = 23): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; ) {
    const length = 1 + ((bytes[at]! * 31) % maxBytes);
    pieces.push(bytes.subarray(at, at + length));
    at += length;
  }
  return pieces;
}
