import { describe, expect, it } from 'vitest';
import { encodeMuxHeader, type MuxFrame, MuxFrameDecoder, maxMuxPayloadBytes } from '../../../../nri/mux/frame.ts';
import { cutAt } from '../support.ts';

function encode({ connectionId, payload }: MuxFrame): Buffer {
  return Buffer.concat([encodeMuxHeader(connectionId, payload.length), payload]);
}

function decode(chunks: Buffer[], maxPayloadBytes?: number): MuxFrame[] {
  const decoder = new MuxFrameDecoder(maxPayloadBytes);
  const frames: MuxFrame[] = [];
  for (const chunk of chunks) decoder.push(chunk, (next) => frames.push(next));
  return frames;
}

describe('MuxFrameDecoder', () => {
  it('rejects an oversize frame at its header', () => {
    const decoder = new MuxFrameDecoder();
    const emit = () => expect.unreachable('no frame can be complete');
    decoder.push(encodeMuxHeader(1, maxMuxPayloadBytes).subarray(0, 7), emit);
    expect(() => decode([encodeMuxHeader(7, maxMuxPayloadBytes + 1)])).toThrow(/16777217 bytes for connection 7/);
    expect(() => decode([encodeMuxHeader(1, 2 ** 32 - 1)])).toThrow(/4294967295 bytes.*at most 16777216/);
  });

  it('returns frames that precede an oversize frame in the same chunk', () => {
    const frames: MuxFrame[] = [];
    const good = { connectionId: 2, payload: Buffer.from('good') };
    const chunk = Buffer.concat([encode(good), encodeMuxHeader(2, 100)]);
    expect(() => new MuxFrameDecoder(99).push(chunk, (next) => frames.push(next))).toThrow(/100 bytes/);
    expect(frames).toEqual([good]);
  });

  it('accepts the longest frame of an old runtime', () => {
    const payload = Buffer.alloc(maxMuxPayloadBytes, 7);
    const [only] = decode([
      encodeMuxHeader(1, payload.length),
      payload.subarray(0, 9_999_999),
      payload.subarray(9_999_999),
    ]);
    expect(only?.payload.equals(payload)).toBe(true);
  });

  it('does not copy buffered data for each new chunk', () => {
    const payload = Buffer.alloc(4 * 1024 * 1024, 1);
    const chunks = cutAt(
      payload,
      Array.from({ length: 4095 }, (_, index) => (index + 1) * 1024),
    );
    // Of this thread: on a busy machine the time of day says nothing.
    const before = process.threadCpuUsage();
    decode([encodeMuxHeader(1, payload.length), ...chunks]);
    const { user, system } = process.threadCpuUsage(before);
    // Joining for each chunk copies 8 GiB here: seconds.
    expect((user + system) / 1_000).toBeLessThan(500);
  });
});
