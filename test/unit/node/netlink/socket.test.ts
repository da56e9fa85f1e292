import { constants } from 'node:os';
import { Flags, formatMessage, parseMessages, putS32 } from 'netlink';
import { describe, expect, it } from 'vitest';
import { pauses } from '../../../../src/lib/waiting-times.ts';
import { NetlinkError } from '../../../../src/node/netlink/errors.ts';
import { type DumpLimit, isCutOff, RequestSocket } from '../../../../src/node/netlink/socket.ts';
import { JumpingClock } from '../../../doubles/quirky-card.ts';

const subject = { operation: 'list links', netns: '/run/netns/x' };
const anyRequest = { type: 18, payload: [Buffer.alloc(16)] };

interface Sent {
  type: number;
  flags: number;
  seq: number;
}

/** The kernel's end of the socket: records what is sent; the test answers. */
class KernelEnd {
  readonly sent: Sent[] = [];
  /** How many messages each exchange had. */
  readonly sends: number[] = [];
  closed = false;
  #onDatagram: (datagram: Buffer) => void = () => undefined;
  #end: (error?: Error) => void = () => undefined;

  async exchange(requests: Buffer, onDatagram: (datagram: Buffer) => void): Promise<void> {
    const messages = parseMessages(requests);
    this.sent.push(...messages.map(({ type, flags, seq }) => ({ type, flags, seq })));
    this.sends.push(messages.length);
    this.#onDatagram = onDatagram;
    await new Promise<void>((resolve, reject) => {
      this.#end = (error) => (error === undefined ? resolve() : reject(error));
    });
  }
  ended = async () => undefined;
  close = () => {
    this.closed = true;
  };

  /** Gives a datagram of the answer. The exchange ends with that of its last request. */
  answer(messages: Uint8Array[][]): void {
    const datagram = Buffer.concat(messages.flat());
    this.#onDatagram(datagram);
    const isFinal = messages.some(([header]) => header?.length === 16 && isEndOf(this.seq, Buffer.from(header)));
    if (isFinal) this.end();
  }
  /** Ends the exchange, with or without answers to all requests. */
  end(error?: Error): void {
    this.#end(error);
  }
  get seq(): number {
    return this.sent.at(-1)!.seq;
  }
}

/** Whether a message is the `NLMSG_ERROR` or `NLMSG_DONE` of a request. */
const isEndOf = (seq: number, header: Buffer) =>
  [2, 3].includes(header.readUInt16LE(4)) && header.readUInt32LE(8) === seq;

const message = (seq: number, type: number, data: Uint8Array, flags = 0) =>
  formatMessage({ type, flags, seq, port: 0, data: [data] });
const part = (seq: number, text: string, flags = 0) => message(seq, 16, Buffer.from(text), Flags.MULTI | flags);
const done = (seq: number, errno = 0, flags = 0) => message(seq, 3, putS32(errno), Flags.MULTI | flags);
const ack = (seq: number, errno = 0) => message(seq, 2, Buffer.concat([putS32(errno), Buffer.alloc(16)]));

function connect() {
  const kernel = new KernelEnd();
  return { kernel, socket: new RequestSocket(kernel, new JumpingClock()) };
}
const tick = () => new Promise((resolve) => setImmediate(resolve));

/** A request that the kernel has got. @param limit how much of a table is wanted */
async function ask(method: 'request' | 'dump', limit?: DumpLimit) {
  const { kernel, socket } = connect();
  const answer = method === 'dump' ? socket.dump(anyRequest, subject, limit) : socket.request(anyRequest, subject);
  await tick();
  return { kernel, socket, answer };
}

describe('RequestSocket', () => {
  it('filters the messages of a dump as they arrive', async () => {
    const { kernel, socket } = connect();
    const asked: string[] = [];
    const keeps = (data: Buffer) => asked.push(data.toString()) === 2;
    const answer = socket.dump({ ...anyRequest, keeps }, subject);
    await tick();
    kernel.answer([part(kernel.seq, 'none'), part(kernel.seq, 'this')]);
    kernel.answer([part(kernel.seq, 'more'), done(kernel.seq)]);
    expect((await answer).map(({ data }) => data.toString())).toEqual(['this']);
    expect(asked).toEqual(['none', 'this', 'more']);
  });

  it('returns the messages of a response, but not the acknowledgement that ends it', async () => {
    const { kernel, answer } = await ask('request');
    expect(kernel.sent[0]).toMatchObject({ type: 18, flags: Flags.REQUEST | Flags.ACK });
    kernel.answer([message(kernel.seq, 16, Buffer.from('link'))]);
    kernel.answer([ack(kernel.seq)]);
    expect((await answer).map(({ data }) => data.toString())).toEqual(['link']);
  });

  it.each(['request', 'dump'] as const)('repeats a %s for a second while the kernel is busy', async (method) => {
    const { kernel, socket } = connect();
    const [ebusy, eagain] = [-16, -11];
    const refuse = async (errno: number) => {
      await tick();
      kernel.answer([method === 'dump' ? done(kernel.seq, errno) : ack(kernel.seq, errno)]);
    };
    const answer = socket[method](anyRequest, subject);
    await refuse(ebusy);
    await refuse(eagain);
    await refuse(0);
    expect(await answer).toEqual([]);
    const failing = socket[method](anyRequest, subject).catch((error: unknown) => error);
    for (const atMs of [0, 20, 60, 140, 300, 620, 940, 1_260]) {
      await refuse(ebusy);
      if (atMs < pauses.busy.untilMs) await tick();
    }
    expect(await failing).toMatchObject({ errno: 'EBUSY', retriable: true });
    expect(kernel.sent).toHaveLength(3 + 8);
  });

  it('queues a request until the previous one is answered, even if the answer is an error', async () => {
    const { kernel, socket } = connect();
    const first = socket.request(anyRequest, subject);
    await tick();
    const second = socket.request({ ...anyRequest, type: 22 }, subject);
    await tick();
    expect(kernel.sent.map(({ type }) => type)).toEqual([18]);
    kernel.answer([ack(kernel.seq, -1)]);
    await expect(first).rejects.toMatchObject({ errno: 'EPERM' });
    await tick();
    expect(kernel.sent.map(({ type }) => type)).toEqual([18, 22]);
    kernel.answer([ack(kernel.seq)]);
    expect(await second).toEqual([]);
  });

  it('returns an empty answer for an error that the request treats as absence, such as ENOENT', async () => {
    const { kernel, socket } = connect();
    const asked = ['ENOENT', 'ENODEV'].map((name) => socket.request({ ...anyRequest, absent: [name] }, subject));
    await tick();
    const [first, second] = kernel.sent.map(({ seq }) => seq);
    kernel.answer([ack(first!, -constants.errno.ENOENT), ack(second!, -constants.errno.ENOENT)]);
    expect(await asked[0]).toEqual([]);
    await expect(asked[1]).rejects.toMatchObject({ errno: 'ENOENT' });
  });

  it('sends queued requests in one datagram, and gives each request its own response', async () => {
    const { kernel, socket } = connect();
    const [first, second, third] = [1, 2, 3].map(() => socket.request(anyRequest, subject));
    await tick();
    expect(kernel.sends).toEqual([3]);
    const [one, two, three] = kernel.sent.map(({ seq }) => seq);
    kernel.answer([message(one!, 16, Buffer.from('one!')), ack(one!)]);
    expect((await first!).map(({ data }) => data.toString())).toEqual(['one!']);
    kernel.answer([ack(two!, -17), message(three!, 16, Buffer.from('last')), ack(three!)]);
    await expect(second).rejects.toMatchObject({ errno: 'EEXIST' });
    expect((await third!).map(({ data }) => data.toString())).toEqual(['last']);
  });

  it('sends a dump request alone, and at most 16 other requests at once', async () => {
    const { kernel, socket } = connect();
    const requests = Array.from({ length: 17 }, () => socket.request(anyRequest, subject));
    const table = socket.dump(anyRequest, subject);
    const last = socket.request(anyRequest, subject);
    for (const size of [16, 17, 18, 19]) {
      await tick();
      expect(kernel.sent).toHaveLength(size);
      for (const { seq } of kernel.sent.slice(size === 16 ? 0 : -1))
        kernel.answer([size === 18 ? done(seq) : ack(seq)]);
    }
    expect(kernel.sends).toEqual([16, 1, 1, 1]);
    await Promise.all([...requests, table, last]);
  });

  it('sends a request with a large response alone, since several would exceed the socket buffer', async () => {
    const { kernel, socket } = connect();
    const large = { ...anyRequest, isLarge: true };
    const requests = [anyRequest, anyRequest, large, large, anyRequest].map((each) => socket.request(each, subject));
    for (const size of [2, 3, 4, 5]) {
      await tick();
      expect(kernel.sent).toHaveLength(size);
      for (const { seq } of kernel.sent.slice(size === 2 ? 0 : -1)) kernel.answer([ack(seq)]);
    }
    expect(kernel.sends).toEqual([2, 1, 1, 1]);
    await Promise.all(requests);
  });

  it('gives up on a dump that was interrupted five times', async () => {
    const { kernel, socket } = connect();
    const answer = socket.dump(anyRequest, subject);
    answer.catch(() => {});
    for (let attempt = 1; attempt <= 5; attempt++) {
      await tick();
      expect(kernel.sent).toHaveLength(attempt);
      kernel.answer([part(kernel.seq, 'half', Flags.DUMP_INTR), done(kernel.seq)]);
    }
    await expect(answer).rejects.toMatchObject({ code: 'netlink-interrupted', retriable: true });
    expect(kernel.sent).toHaveLength(5);
  });

  it('restarts an interrupted dump, and returns only the new parts', async () => {
    const { kernel, answer } = await ask('dump');
    kernel.answer([part(kernel.seq, 'old!'), done(kernel.seq, 0, Flags.DUMP_INTR)]);
    await tick();
    kernel.answer([part(kernel.seq, 'new!'), done(kernel.seq)]);
    expect((await answer).map(({ data }) => data.toString())).toEqual(['new!']);
  });

  it.each([
    { messages: 3, bytes: Infinity },
    { messages: Infinity, bytes: 12 },
    { messages: Infinity, bytes: 9 },
  ])('stops reading a table at the limit %j, without parsing the rest or asking again', async (limit) => {
    const { kernel, answer } = await ask('dump', limit);
    kernel.answer([part(kernel.seq, 'one '), part(kernel.seq, 'two ')]);
    kernel.answer([part(kernel.seq, 'tre '), part(kernel.seq, 'four')]);
    // No netlink messages: parsing them would fail the dump.
    kernel.answer([[Buffer.alloc(64, 0xff)]]);
    kernel.answer([part(kernel.seq, 'last', Flags.DUMP_INTR), done(kernel.seq, 0, Flags.DUMP_INTR)]);
    const messages = await answer;
    expect(messages.map(({ data }) => data.toString())).toEqual(['one ', 'two ', 'tre ']);
    expect([isCutOff(messages, limit), isCutOff(messages.slice(1), limit)]).toEqual([true, false]);
    expect(kernel.sent).toHaveLength(1);
  });

  it.each([
    ['contains every wanted message and then', { messages: 1, bytes: Infinity }, ack],
    ['ends with', undefined, done],
  ])('fails a dump that %s an error', async (_, limit, end) => {
    const { kernel, answer } = await ask('dump', limit);
    kernel.answer([part(kernel.seq, 'one ')]);
    kernel.answer([end(kernel.seq, -22)]);
    await expect(answer).rejects.toMatchObject({ code: 'netlink-refused', errno: 'EINVAL', retriable: false });
  });

  it('names the rejected operation, its place and the remedy', async () => {
    const { kernel, socket } = connect();
    const answer = socket.request(anyRequest, {
      operation: 'change link',
      interfaceName: 'net1',
      netns: '/run/netns/x',
      hints: { EEXIST: 'choose another' },
    });
    await tick();
    kernel.answer([ack(kernel.seq, -17)]);
    await expect(answer).rejects.toMatchObject({
      message: 'cannot change link net1 in /run/netns/x: file already exists (EEXIST)',
      errno: 'EEXIST',
      operation: 'change link',
      interfaceName: 'net1',
      netns: '/run/netns/x',
      hint: 'choose another',
    });
  });

  it('ignores responses to other requests', async () => {
    const { kernel, answer } = await ask('request');
    kernel.answer([ack(kernel.seq + 1, -1), ack(0, -1)]);
    kernel.answer([ack(kernel.seq)]);
    expect(await answer).toEqual([]);
  });

  it('fails if the socket overruns or cannot send', async () => {
    const { kernel, answer: overrun } = await ask('request');
    kernel.end(new Error('ENOBUFS'));
    await expect(overrun).rejects.toMatchObject({ code: 'netlink-lost', retriable: true });
  });

  it('times out, and ignores a late response', async () => {
    const { kernel, socket, answer } = await ask('request');
    const { seq } = kernel;
    kernel.end();
    await expect(answer).rejects.toMatchObject({ code: 'netlink-lost', retriable: true });
    const next = socket.request(anyRequest, subject);
    await tick();
    kernel.answer([ack(seq, -1)]);
    kernel.answer([ack(kernel.seq)]);
    expect(await next).toEqual([]);
  });

  it('rejects pending and queued requests when closed, and may be closed twice', async () => {
    const { kernel, socket } = connect();
    const answers = [socket.request(anyRequest, subject), socket.dump(anyRequest, subject)];
    await tick();
    socket[Symbol.dispose]();
    socket[Symbol.dispose]();
    for (const answer of answers) await expect(answer).rejects.toMatchObject({ code: 'netlink-closed' });
    await expect(socket.request(anyRequest, subject)).rejects.toBeInstanceOf(NetlinkError);
    await tick();
    expect(kernel.closed).toBe(true);
    expect(kernel.sent).toHaveLength(1);
  });
});
