import { describe, expect, it } from 'vitest';
import { goChannel } from '../../../../nri/testing.ts';
import { encodeTtrpcFrame } from '../../../../nri/ttrpc/frame.ts';
import { cutAt, TestChannel } from '../support.ts';

/** What Go would have read of these multiplexer frames. */
function read(frames: Buffer[]) {
  const inner = new TestChannel();
  const received: Buffer[] = [];
  const errors: Error[] = [];
  goChannel(inner, (error) => errors.push(error)).receive({
    data: (chunk) => received.push(chunk),
    closed: () => undefined,
  });
  for (const frame of frames) inner.arrive(frame);
  return { bytes: Buffer.concat(received), errors, closed: inner.error };
}

function message(totalBytes: number): Buffer {
  return encodeTtrpcFrame({ streamId: 1, type: 2, data: Buffer.alloc(totalBytes - 10, 7) });
}

/** Cut into frames of this length. */
function every(bytes: Buffer, length: number): Buffer[] {
  return cutAt(
    bytes,
    Array.from({ length: Math.ceil(bytes.length / length) - 1 }, (_, index) => (index + 1) * length),
  );
}

// Each of these was seen on the real Go code: facts of trap 1.
describe('goChannel', () => {
  it('trap 1: loses a frame of 4097 bytes, and the connection with it', () => {
    const result = read([message(4097), message(10)]);
    expect(result.bytes).toHaveLength(0);
    expect(result.errors).toMatchObject([{ message: 'cannot allocate memory' }]);
  });

  it.each([4097, 5000, 8191, 8192, 8193, 200_000, 4 * 1024 * 1024 + 10])(
    'trap 1: takes a message of %i bytes as 4096 and the rest, or as header and the rest',
    (size) => {
      for (const first of [4096, 10]) {
        const bytes = message(size);
        const result = read([bytes.subarray(0, first), bytes.subarray(first), message(20)]);
        expect(result.errors).toEqual([]);
        expect(result.bytes.equals(Buffer.concat([bytes, message(20)]))).toBe(true);
      }
    },
  );

  it('trap 1: takes 200 KB in frames of 4096 bytes, but not 2 MB: the queue overflows', () => {
    expect(read(every(message(200_000), 4096)).bytes).toEqual(message(200_000));
    const tooMany = read(every(message(2_000_000), 4096));
    expect(tooMany.bytes).toHaveLength(0);
    expect(tooMany.closed).toMatchObject({ code: 'queue-full' });
  });
});
