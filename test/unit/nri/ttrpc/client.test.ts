import { describe, expect, it } from 'vitest';
import { TtrpcClient } from '../../../../nri/ttrpc/client.ts';
import { createTtrpcCodec, type TtrpcResponse } from '../../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType, maxDataBytes } from '../../../../nri/ttrpc/frame.ts';
import { recordingLogger, TestChannel } from '../support.ts';

const codec = createTtrpcCodec();
const nothing = Buffer.alloc(0);

function connect() {
  const channel = new TestChannel();
  const log = recordingLogger();
  const client = new TtrpcClient(channel, { codec, logger: log });
  const answer = (streamId: number, response: TtrpcResponse, type: number = FrameType.response) =>
    channel.arrive(encodeTtrpcFrame({ streamId, type, data: codec.response.encode(response) }));
  const requests = () => channel.frames.map(({ streamId, data }) => ({ streamId, ...codec.request.decode(data) }));
  return { channel, log, client, answer, requests };
}

describe('TtrpcClient', () => {
  it('numbers its calls 1, 3, 5 and matches responses in any order', async () => {
    const { client, answer, requests } = connect();
    const calls = ['a', 'b', 'c'].map((method) => client.call('s', method, Buffer.from(method)));
    expect(requests()).toEqual([
      { streamId: 1, service: 's', method: 'a', payload: Buffer.from('a') },
      { streamId: 3, service: 's', method: 'b', payload: Buffer.from('b') },
      { streamId: 5, service: 's', method: 'c', payload: Buffer.from('c') },
    ]);
    answer(5, { payload: Buffer.from('C') });
    answer(1, { status: {}, payload: Buffer.from('A') });
    answer(3, {});
    expect((await Promise.all(calls)).map(String)).toEqual(['A', '', 'C']);
  });

  it('sends its timeout to the peer', () => {
    const { client, requests } = connect();
    client.call('s', 'm', nothing, { timeoutMs: 5000 });
    client.call('s', 'm', nothing);
    expect(requests()).toEqual([
      { streamId: 1, service: 's', method: 'm', timeoutNano: 5_000_000_000 },
      { streamId: 3, service: 's', method: 'm' },
    ]);
  });

  it("rejects with the peer's status, even if the status code is unknown", async () => {
    const { client, answer } = connect();
    const calls = [client.call('s', 'm', nothing), client.call('s', 'm', nothing)];
    answer(1, { status: { code: 12, message: 'method m' }, payload: Buffer.from('means nothing') });
    answer(3, { status: { code: 99 } });
    await expect(calls[0]).rejects.toMatchObject({ code: 'ttrpc-unimplemented', status: 12, message: 'method m' });
    await expect(calls[1]).rejects.toMatchObject({ code: 'ttrpc-99', status: 99 });
  });

  it('stops waiting at its timeout, and drops and logs the late reply', async () => {
    const { client, answer, log } = connect();
    await expect(client.call('s', 'm', nothing, { timeoutMs: 5 })).rejects.toMatchObject({
      code: 'call-timeout',
      message: 's/m was not answered within 5 ms',
    });
    answer(1, { payload: Buffer.from('late') });
    expect(log.entries).toMatchObject([{ level: 'debug', fields: { streamId: 1 } }]);
    const next = client.call('s', 'm', nothing);
    answer(3, { payload: Buffer.from('in time') });
    expect(String(await next)).toBe('in time');
  });

  it('rejects a message that is too long, and keeps the connection', async () => {
    const { channel, client, answer } = connect();
    await expect(client.call('s', 'm', Buffer.alloc(maxDataBytes))).rejects.toMatchObject({ status: 8 });
    expect(channel.sent).toEqual([]);
    const next = client.call('s', 'm', nothing);
    answer(1, {});
    await next;
  });

  it('fails a call with an overlong response as soon as it has the header, and no other call', async () => {
    const { channel, client, answer } = connect();
    const [long, short] = [client.call('s', 'long', nothing), client.call('s', 'short', nothing)];
    const header = encodeTtrpcFrame({ streamId: 1, type: FrameType.response, data: nothing });
    header.writeUInt32BE(maxDataBytes + 1);
    channel.arrive(header);
    await expect(long).rejects.toMatchObject({ status: 8 });
    channel.arrive(Buffer.alloc(maxDataBytes + 1, 0xff));
    answer(3, { payload: Buffer.from('ok') });
    expect(String(await short)).toBe('ok');
  });

  it('fails a call whose response has another message type', async () => {
    const { channel, client, answer } = connect();
    const calls = [client.call('s', 'm', nothing), client.call('s', 'm', nothing)];
    answer(1, {}, FrameType.data);
    channel.arrive(encodeTtrpcFrame({ streamId: 3, type: FrameType.response, data: Buffer.from([0xff]) }));
    await expect(calls[0]).rejects.toMatchObject({ code: 'ttrpc-protocol' });
    await expect(calls[1]).rejects.toMatchObject({ code: 'ttrpc-protocol', cause: { code: 'undecodable' } });
  });

  it('rejects pending and later calls when the connection closes, with the reason', async () => {
    const { channel, client } = connect();
    const cause = new Error('ECONNRESET');
    const pending = client.call('s', 'm', nothing);
    channel.close(cause);
    await expect(pending).rejects.toMatchObject({ code: 'connection-closed', cause });
    await expect(client.call('s', 'm', nothing)).rejects.toMatchObject({ code: 'connection-closed', cause });
    expect(channel.sent).toHaveLength(1);
  });
});
