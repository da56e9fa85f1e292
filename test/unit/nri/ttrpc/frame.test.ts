import { describe, expect, it } from 'vitest';
import {
  encodeTtrpcFrame,
  maxDataBytes,
  type OversizeFrame,
  type TtrpcFrame,
  TtrpcFrameDecoder,
} from '../../../../nri/ttrpc/frame.ts';
import { cutAt } from '../support.ts';

function decode(chunks: Buffer[]): (TtrpcFrame | OversizeFrame)[] {
  const decoder = new TtrpcFrameDecoder();
  const frames: (TtrpcFrame | OversizeFrame)[] = [];
  for (const chunk of chunks) decoder.push(chunk, (next) => frames.push(next));
  return frames;
}

/** A header that announces more data than a frame may carry. */
function oversizeHeader(streamId: number, bytes: number): Buffer {
  const header = encodeTtrpcFrame({ streamId, type: 1, data: Buffer.alloc(0) });
  header.writeUInt32BE(bytes, 0);
  return header;
}

describe('TtrpcFrameDecoder', () => {
  it('accepts 4 MiB and rejects one byte more at the header', () => {
    const data = Buffer.alloc(maxDataBytes, 3);
    const [full] = decode([encodeTtrpcFrame({ streamId: 5, type: 1, data })]);
    expect(full !== undefined && 'data' in full && full.data.equals(data)).toBe(true);
    expect(decode([oversizeHeader(7, maxDataBytes + 1).subarray(0, 9)])).toEqual([]);
    expect(decode([oversizeHeader(7, maxDataBytes + 1)])).toEqual([
      { streamId: 7, type: 1, flags: 0, oversizeBytes: maxDataBytes + 1 },
    ]);
  });

  it('discards the data of an oversize frame and continues after it', () => {
    const next = { streamId: 9, type: 2, flags: 0, data: Buffer.from('next') };
    const stream = Buffer.concat([
      oversizeHeader(7, maxDataBytes + 3),
      Buffer.alloc(maxDataBytes + 3, 0xff),
      encodeTtrpcFrame(next),
    ]);
    expect(decode(cutAt(stream, [5, 4096, 70_000, maxDataBytes + 12]))).toEqual([
      expect.objectContaining({ streamId: 7, oversizeBytes: maxDataBytes + 3 }),
      next,
    ]);
  });
});

it('encodeTtrpcFrame rejects values that do not fit a frame', () => {
  expect(() => encodeTtrpcFrame({ streamId: 1, type: 1, data: Buffer.alloc(maxDataBytes + 1) })).toThrow(
    expect.objectContaining({ code: 'ttrpc-resourceExhausted', status: 8 }),
  );
});
