import { describe, expect, it } from 'vitest';
import { encodeMuxHeader, type MuxFrame, MuxFrameDecoder } from '../../../../nri/mux/frame.ts';
import { Mux } from '../../../../nri/mux/mux.ts';
import type { Channel } from '../../../../nri/ttrpc/channel.ts';
import { encodeTtrpcFrame } from '../../../../nri/ttrpc/frame.ts';
import { socketPair, until } from '../support.ts';

function collect(channel: Channel) {
  const chunks: Buffer[] = [];
  const ends: (Error | undefined)[] = [];
  channel.receive({ data: (chunk) => chunks.push(chunk), closed: (error) => ends.push(error) });
  return { ends, bytes: () => Buffer.concat(chunks) };
}

async function openMux() {
  const [near, far] = await socketPair();
  return { near, far, mux: new Mux(near) };
}

/** The frames that come out at the far end when this much data is sent in one ttrpc frame. */
async function framesFor(dataBytes: number): Promise<MuxFrame[]> {
  const [near, far] = await socketPair();
  const frames: MuxFrame[] = [];
  const decoder = new MuxFrameDecoder();
  far.on('data', (chunk: Buffer) => decoder.push(chunk, (frame) => frames.push(frame)));
  const message = encodeTtrpcFrame({ streamId: 1, type: 2, data: Buffer.alloc(dataBytes, 5) });
  new Mux(near).open(1).send(message);
  await until(() => frames.reduce((sum, { payload }) => sum + payload.length, 0) >= message.length);
  expect(Buffer.concat(frames.map(({ payload }) => payload)).equals(message)).toBe(true);
  return frames;
}

describe('Mux', () => {
  it.each([
    { dataBytes: 0, lengths: [10] },
    { dataBytes: 4085, lengths: [4095] },
    { dataBytes: 4086, lengths: [4096] },
    { dataBytes: 4087, lengths: [4096, 1] },
    { dataBytes: 200_000, lengths: [4096, 195_914] },
    { dataBytes: 4 * 1024 * 1024, lengths: [4096, 4_190_218] },
  ])('writes $dataBytes bytes of data as frames of $lengths bytes', async ({ dataBytes, lengths }) => {
    expect((await framesFor(dataBytes)).map(({ payload }) => payload.length)).toEqual(lengths);
  });

  it('delivers each connection its own bytes, and drops bytes of unknown connections', async () => {
    const { far, mux } = await openMux();
    const [one, two] = [collect(mux.open(1)), collect(mux.open(2))];
    for (const [id, text] of [
      [2, 'b'],
      [9, 'unknown'],
      [1, 'a'],
      [0, 'reserved'],
      [2, ''],
      [2, 'c'],
    ] as const) {
      far.write(Buffer.concat([encodeMuxHeader(id, text.length), Buffer.from(text)]));
    }
    await until(() => two.bytes().length === 2);
    expect([one.bytes().toString(), two.bytes().toString()]).toEqual(['a', 'bc']);
  });

  it('ends all connections when the peer ends, without an error', async () => {
    const { far, mux } = await openMux();
    const [one, two] = [collect(mux.open(1)), collect(mux.open(2))];
    far.end();
    await expect(mux.closed).resolves.toBeUndefined();
    expect([one.ends, two.ends]).toEqual([[undefined], [undefined]]);
    expect(() => mux.open(1).send(Buffer.from('late'))).toThrow(expect.objectContaining({ code: 'connection-closed' }));
  });

  it('sends data that was written before the connection was closed', async () => {
    const [near, far] = await socketPair();
    const received: Buffer[] = [];
    far.on('data', (chunk: Buffer) => received.push(chunk));
    const ended = new Promise((resolve) => far.once('end', resolve));
    const mux = new Mux(near);
    mux.open(1).send(Buffer.alloc(1_000_000, 1));
    mux.close();
    mux.close();
    await ended;
    expect(Buffer.concat(received)).toHaveLength(1_000_000 + 16);
  });

  it('closes the connection on an invalid frame, with the reason', async () => {
    const { far, mux } = await openMux();
    const one = collect(mux.open(1));
    far.write('HTTP/1.1 400 Bad Request\r\n\r\n');
    const error = await mux.closed;
    expect(error).toMatchObject({ code: 'mux-frame-too-long' });
    expect(one.ends).toEqual([error]);
  });

  it('gives up on a peer that does not read, instead of buffering without limit', async () => {
    const [near, far] = await socketPair();
    far.pause();
    const mux = new Mux(near, { maxUnsentBytes: 1_000_000 });
    const channel = mux.open(1);
    const send = () => {
      for (let count = 0; count < 100; count += 1) channel.send(Buffer.alloc(100_000));
    };
    expect(send).toThrow(expect.objectContaining({ code: 'connection-closed' }));
    expect(await mux.closed).toMatchObject({ code: 'peer-not-reading' });
  });

  it('reports a broken connection as an error, not as an end', async () => {
    const { near, far, mux } = await openMux();
    const broken = new Error('broken');
    near.destroy(broken);
    expect(await mux.closed).toBe(broken);
    far.destroy();
  });
});
