import { describe, expect, it, vi } from 'vitest';
import { createTtrpcCodec, type TtrpcRequest, type TtrpcResponse } from '../../../../nri/ttrpc/codec.ts';
import { encodeTtrpcFrame, FrameType, maxDataBytes, type TtrpcFrame } from '../../../../nri/ttrpc/frame.ts';
import { type Method, TtrpcServer, type TtrpcServerOptions } from '../../../../nri/ttrpc/server.ts';
import { TtrpcError } from '../../../../nri/ttrpc/status.ts';
import { recordingLogger, TestChannel, until } from '../support.ts';

const codec = createTtrpcCodec();

/** A server with these methods in service `s`, and its caller. */
function serve(methods: Record<string, Method>, options: Partial<TtrpcServerOptions> = {}) {
  const channel = new TestChannel();
  const log = recordingLogger();
  const services = new Map([['s', new Map(Object.entries(methods))]]);
  const server = new TtrpcServer(channel, services, { codec, logger: log, ...options });
  const arrive = (streamId: number, data: Uint8Array, type: number = FrameType.request, flags = 0) =>
    channel.arrive(encodeTtrpcFrame({ streamId, type, flags, data }));
  const call = (streamId: number, method: string, request: TtrpcRequest = {}) =>
    arrive(streamId, codec.request.encode({ service: 's', method, ...request }));
  return { channel, server, log, call, arrive, answers: () => channel.frames.map(readAnswer) };
}

function readAnswer({ streamId, type, flags, data }: TtrpcFrame): TtrpcResponse & { streamId: number } {
  expect([type, flags]).toEqual([FrameType.response, 0]);
  return { streamId, ...codec.response.decode(data) };
}

const echo: Method = (payload) => ({ payload });
const never: Method = () => new Promise(() => undefined);

describe('TtrpcServer', () => {
  it('answers an empty OK with an empty frame', async () => {
    const { channel, call } = serve({ nothing: () => ({}) });
    call(3, 'nothing');
    await until(() => channel.sent.length === 1);
    expect(channel.sent[0]?.toString('hex')).toBe('00000000000000030200');
  });

  it("accepts stream IDs with gaps, and rejects even, repeated and decreasing IDs with Go's errors", async () => {
    const { call, arrive, answers } = serve({ nothing: () => ({}) });
    for (const id of [1, 5, 4, 5, 3, 7]) call(id, 'nothing');
    arrive(9, Buffer.from('late data'), FrameType.data);
    await until(() => answers().length === 7);
    const reuse = { code: 3, message: 'StreamID cannot be re-used and must increment' };
    expect(answers().sort((a, b) => a.streamId - b.streamId)).toEqual([
      { streamId: 1 },
      { streamId: 3, status: reuse },
      { streamId: 4, status: { code: 3, message: 'StreamID must be odd for client initiated streams' } },
      { streamId: 5, status: reuse },
      { streamId: 5 },
      { streamId: 7 },
      { streamId: 9, status: { code: 3, message: 'StreamID is no longer active' } },
    ]);
  });

  it('answers unknown services, unknown methods and undecodable requests on their streams', () => {
    const { call, arrive, answers } = serve({ echo });
    call(1, 'echo', { service: 'other' });
    call(3, 'toString');
    arrive(5, Buffer.from([0xff, 0xff, 0xff]));
    arrive(7, codec.request.encode({ service: 's', method: 'echo' }), FrameType.request, 0x02);
    expect(answers()).toEqual([
      { streamId: 1, status: { code: 12, message: 'service other' } },
      { streamId: 3, status: { code: 12, message: 'method toString' } },
      { streamId: 5, status: { code: 3, message: 'unmarshal request error' } },
      { streamId: 7, status: { code: 12, message: 'method echo takes one message, not a stream' } },
    ]);
  });

  it('ignores unknown frame types', async () => {
    const { call, arrive, answers } = serve({ echo });
    arrive(1, Buffer.from('ping'), 4);
    call(1, 'echo');
    await until(() => answers().length === 1);
    expect(answers()).toEqual([{ streamId: 1 }]);
  });

  it('converts an exception of a method into a status', async () => {
    const { call, answers, channel } = serve({
      plain: () => {
        throw new Error('no such VF');
      },
      chosen: () => Promise.reject(new TtrpcError(9, 'not yet')),
      odd: () => Promise.reject('just text'),
      broken: () => Promise.reject(new Error('half a character: \ud800')),
      empty: () => Promise.reject(new Error('')),
      textless: () => Promise.reject(Object.assign(new TypeError('x'), { message: undefined })),
    });
    call(1, 'plain');
    call(3, 'chosen');
    call(5, 'odd');
    call(7, 'broken');
    call(9, 'empty');
    call(11, 'textless');
    await until(() => answers().length === 6);
    expect(answers()).toEqual([
      { streamId: 1, status: { code: 2, message: 'no such VF' } },
      { streamId: 3, status: { code: 9, message: 'not yet' } },
      { streamId: 5, status: { code: 2, message: 'just text' } },
      { streamId: 7, status: { code: 2, message: 'half a character: \ufffd' } },
      { streamId: 9, status: { code: 2, message: 'Error' } },
      { streamId: 11, status: { code: 2, message: 'TypeError' } },
    ]);
    // Go would not read a message with half a character in it.
    expect(() => new TextDecoder('utf-8', { fatal: true }).decode(channel.sent[3]?.subarray(-10))).not.toThrow();
  });

  it('rejects an overlong request as soon as it has the header, and continues', async () => {
    const { channel, call, answers } = serve({ echo });
    const header = encodeTtrpcFrame({ streamId: 1, type: FrameType.request, data: Buffer.alloc(0) });
    header.writeUInt32BE(maxDataBytes + 1);
    channel.arrive(header);
    expect(answers()).toMatchObject([{ streamId: 1, status: { code: 8 } }]);
    channel.arrive(Buffer.alloc(maxDataBytes + 1));
    call(3, 'echo');
    await until(() => answers().length === 2);
    expect(answers()[1]).toEqual({ streamId: 3 });
  });

  it('returns an error instead of an overlong response, where the Go server would close the connection', async () => {
    const { call, answers } = serve({
      long: () => ({ payload: Buffer.alloc(maxDataBytes) }),
      longError: () => {
        throw new Error('x'.repeat(maxDataBytes));
      },
      longest: () => ({ payload: Buffer.alloc(maxDataBytes - 5) }),
    });
    for (const [index, method] of ['long', 'longError', 'longest'].entries()) call(2 * index + 1, method);
    await until(() => answers().length === 3);
    const [long, longError, longest] = answers().sort((a, b) => a.streamId - b.streamId);
    expect(long).toMatchObject({ status: { code: 8, message: expect.stringContaining('4194309') } });
    expect(longError).toMatchObject({ status: { code: 8, message: expect.stringContaining('4194316') } });
    expect(longest?.payload).toHaveLength(maxDataBytes - 5);
  });

  it('passes the method its deadline, and aborts the method at the deadline without answering', async () => {
    const seen: { timeoutMs: number | undefined; aborted: boolean }[] = [];
    const { call, answers } = serve({
      wait: async (_, { timeoutMs, signal }) => {
        seen.push({ timeoutMs, aborted: signal.aborted });
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        seen.push({ timeoutMs, aborted: signal.aborted });
        await new Promise(() => undefined);
        return {};
      },
    });
    call(1, 'wait', { timeoutNano: 30_500_000 });
    await until(() => seen.length === 2);
    expect(seen).toEqual([
      { timeoutMs: 30.5, aborted: false },
      { timeoutMs: 30.5, aborted: true },
    ]);
    expect(answers()).toEqual([]);
  });

  it('answers before the deadline if configured to, and then drops the late result', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const release = Promise.withResolvers<void>();
      const { call, answers, log } = serve(
        { slow: () => release.promise.then(() => ({ payload: Buffer.from('late') })) },
        { answerBeforeDeadlineMs: 100 },
      );
      call(1, 'slow', { timeoutNano: 2e9 });
      call(3, 'slow', { timeoutNano: 100e6 });
      await vi.advanceTimersByTimeAsync(49);
      expect(answers()).toEqual([]);
      await vi.advanceTimersByTimeAsync(1);
      expect(answers()).toEqual([
        { streamId: 3, status: { code: 4, message: 'slow was not done within 50 of 100 ms' } },
      ]);
      await vi.advanceTimersByTimeAsync(1849);
      expect(answers()).toHaveLength(1);
      await vi.advanceTimersByTimeAsync(1);
      expect(answers()[1]).toMatchObject({ streamId: 1, status: { code: 4 } });
      release.resolve();
      await vi.advanceTimersByTimeAsync(0);
      expect(answers()).toHaveLength(2);
      expect(log.entries.filter(({ message }) => message === 'handler finished after its call timed out')).toHaveLength(
        2,
      );
    } finally {
      vi.useRealTimers();
    }
  });

  it('sets no timer for a call without a time limit, and accepts time limits of any length', async () => {
    const infos: (number | undefined)[] = [];
    const { call } = serve({
      wait: (_, { timeoutMs, signal }) => {
        infos.push(timeoutMs);
        expect(signal.aborted).toBe(false);
        return {};
      },
    });
    call(1, 'wait');
    call(3, 'wait', { timeoutNano: 2 ** 62 });
    await until(() => infos.length === 2);
    expect(infos).toEqual([undefined, 2 ** 62 / 1e6]);
  });

  it('keeps reading while methods are busy, rejects excess calls, and recovers', async () => {
    const release = Promise.withResolvers<void>();
    const { call, answers } = serve({ slow: () => release.promise.then(() => ({})), echo }, { maxConcurrentCalls: 3 });
    for (let id = 1; id <= 9; id += 2) call(id, 'slow');
    expect(answers()).toEqual([
      { streamId: 7, status: { code: 8, message: 'too many calls: 3 are at work already' } },
      { streamId: 9, status: { code: 8, message: 'too many calls: 3 are at work already' } },
    ]);
    release.resolve();
    await until(() => answers().length === 5);
    call(11, 'echo');
    await until(() => answers().length === 6);
    expect(answers().slice(2)).toEqual([{ streamId: 1 }, { streamId: 3 }, { streamId: 5 }, { streamId: 11 }]);
  });

  it('serves further calls while some methods hang, and closes the connection when too many hang', async () => {
    const limits = { maxConcurrentCalls: 2, maxAbandonedCalls: 3, answerBeforeDeadlineMs: 0 };
    const { call, answers, channel, log } = serve({ never, echo }, limits);
    const hang = async (streamId: number) => {
      call(streamId, 'never', { timeoutNano: 1e6 });
      await until(() => answers().some((answer) => answer.streamId === streamId));
    };
    for (const id of [1, 3, 5]) await hang(id);
    call(7, 'echo');
    await until(() => answers().length === 4);
    expect(answers()[3]).toEqual({ streamId: 7 });
    expect(channel.error).toBeUndefined();
    await hang(9);
    expect(channel.error).toMatchObject({ code: 'handlers-hang' });
    expect(log.notable()).toContainEqual(
      expect.objectContaining({ level: 'error', fields: { method: 'never', abandoned: 4 } }),
    );
  });

  it('aborts running methods when the connection closes, and drops their results', async () => {
    const reasons: unknown[] = [];
    const { channel, call, server, log } = serve({
      wait: async (_, { signal }) => {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        reasons.push(signal.reason);
        throw signal.reason;
      },
    });
    call(1, 'wait');
    channel.close();
    expect(await server.idle(1000)).toBe(true);
    expect(reasons).toEqual([expect.objectContaining({ code: 'connection-closed' })]);
    expect(channel.sent).toEqual([]);
    expect(log.notable()).toMatchObject([{ level: 'warn', fields: { method: 'wait' } }]);
  });

  it('waits for running methods when it stops, but only for a limited time', async () => {
    const { call, server } = serve({ never });
    expect(await server.idle(1000)).toBe(true);
    call(1, 'never');
    expect(await server.idle(10)).toBe(false);
  });

  it('runs follow-up work only after the response is sent, and survives exceptions in it', async () => {
    const order: string[] = [];
    const { channel, call, log } = serve({
      sync: () => ({
        afterwards: () => {
          order.push(`afterwards, ${channel.sent.length} sent`);
          throw new Error('too late to matter');
        },
      }),
    });
    call(1, 'sync');
    await until(() => order.length === 1);
    expect(order).toEqual(['afterwards, 1 sent']);
    expect(log.notable()).toMatchObject([
      { level: 'error', message: 'the work that follows a response failed; the response was sent' },
    ]);
  });
});
