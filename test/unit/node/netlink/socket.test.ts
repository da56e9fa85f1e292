import { EventEmitter } from 'node:events';
import { Flags, formatMessage, parseMessages, putS32 } from 'netlink';
import { describe, expect, it } from 'vitest';
import { type Clock, systemClock } from '../../../../src/lib/clock.ts';
import { NetlinkError } from '../../../../src/node/netlink/errors.ts';
import { RequestSocket } from '../../../../src/node/netlink/socket.ts';

const subject = { operation: 'list links', netns: '/run/netns/x' };
const anyRequest = { type: 18, payload: [Buffer.alloc(16)] };

interface Sent {
  type: number;
  flags: number;
  seq: number;
}

/** The kernel's end of the socket: records what is sent; the test answers. */
class KernelEnd extends EventEmitter {
  readonly sent: Sent[] = [];
  /** How many messages each datagram had. */
  readonly sends: number[] = [];
  references = 1;
  closed = false;
  sendError: Error | undefined;

  send(message: Uint8Array, _options: object, callback: (error?: Error) => void): void {
    const messages = parseMessages(Buffer.from(message));
    this.sent.push(...messages.map(({ type, flags, seq }) => ({ type, flags, seq })));
    this.sends.push(messages.length);
    setImmediate(() => callback(this.sendError));
  }
  ref = () => this.references++;
  unref = () => this.references--;
  close = () => {
    this.closed = true;
  };

  answer(messages: Uint8Array[][], port = 0): void {
    this.emit('message', Buffer.concat(messages.flat()), { port });
  }
  get seq(): number {
    return this.sent.at(-1)!.seq;
  }
}

const message = (seq: number, type: number, data: Uint8Array, flags = 0) =>
  formatMessage({ type, flags, seq, port: 0, data: [data] });
const part = (seq: number, text: string, flags = 0) => message(seq, 16, Buffer.from(text), Flags.MULTI | flags);
const done = (seq: number, errno = 0, flags = 0) => message(seq, 3, putS32(errno), Flags.MULTI | flags);
const ack = (seq: number, errno = 0) => message(seq, 2, Buffer.concat([putS32(errno), Buffer.alloc(16)]));

function connect(clock: Clock = systemClock) {
  const kernel = new KernelEnd();
  return { kernel, socket: new RequestSocket(kernel, clock) };
}
const tick = () => new Promise((resolve) => setImmediate(resolve));

describe('RequestSocket', () => {
  it('gives the parts of an answer without the acknowledgement', async () => {
    const { kernel, socket } = connect();
    const answer = socket.request(anyRequest, subject);
    await tick();
    expect(kernel.sent[0]).toMatchObject({ type: 18, flags: Flags.REQUEST | Flags.ACK });
    kernel.answer([message(kernel.seq, 16, Buffer.from('link'))]);
    kernel.answer([ack(kernel.seq)]);
    expect((await answer).map(({ data }) => data.toString())).toEqual(['link']);
  });

  it('sends what is asked while it waits for an answer only after that, even if it is an error', async () => {
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

  it('sends requests that wait together in one datagram, and gives each its own answer', async () => {
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

  it('asks for a table alone, in its turn, and sends no more than 16 requests at once', async () => {
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

  it('sends a request with a large answer alone, in its turn: several do not fit into the buffer of the socket', async () => {
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

  it('starts a dump over when it was interrupted, and gives only the new parts', async () => {
    const { kernel, socket } = connect();
    const answer = socket.dump(anyRequest, subject);
    await tick();
    kernel.answer([part(kernel.seq, 'old!'), done(kernel.seq, 0, Flags.DUMP_INTR)]);
    await tick();
    kernel.answer([part(kernel.seq, 'new!'), done(kernel.seq)]);
    expect((await answer).map(({ data }) => data.toString())).toEqual(['new!']);
  });

  it('takes no more of a table than is wanted, does not parse the rest, and does not start over for it', async () => {
    const { kernel, socket } = connect();
    const answer = socket.dump(anyRequest, subject, 3);
    await tick();
    kernel.answer([part(kernel.seq, 'one '), part(kernel.seq, 'two ')]);
    kernel.answer([part(kernel.seq, 'tre '), part(kernel.seq, 'four')]);
    // No netlink messages: parsing them would fail the dump.
    kernel.emit('message', Buffer.alloc(64, 0xff), { port: 0 });
    kernel.answer([part(kernel.seq, 'last', Flags.DUMP_INTR), done(kernel.seq, 0, Flags.DUMP_INTR)]);
    expect((await answer).map(({ data }) => data.toString())).toEqual(['one ', 'two ', 'tre ']);
    expect(kernel.sent).toHaveLength(1);
  });

  it('fails a dump that has all that is wanted and then an error', async () => {
    const { kernel, socket } = connect();
    const answer = socket.dump(anyRequest, subject, 1);
    await tick();
    kernel.answer([part(kernel.seq, 'one ')]);
    kernel.answer([ack(kernel.seq, -12)]);
    await expect(answer).rejects.toMatchObject({ code: 'netlink-refused', errno: 'ENOMEM' });
  });

  it('fails a dump that ends with an error', async () => {
    const { kernel, socket } = connect();
    const answer = socket.dump(anyRequest, subject);
    await tick();
    kernel.answer([part(kernel.seq, 'half'), done(kernel.seq, -12)]);
    await expect(answer).rejects.toMatchObject({ code: 'netlink-refused', errno: 'ENOMEM', retriable: true });
  });

  it('says what was refused, where, and what to do', async () => {
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

  it('heeds neither other senders nor answers to other requests', async () => {
    const { kernel, socket } = connect();
    const answer = socket.request(anyRequest, subject);
    await tick();
    kernel.answer([ack(kernel.seq, -1)], 4711);
    kernel.answer([ack(kernel.seq + 1, -1), ack(0, -1)]);
    kernel.answer([ack(kernel.seq)]);
    expect(await answer).toEqual([]);
  });

  it('fails when the socket overruns or cannot send', async () => {
    const { kernel, socket } = connect();
    const overrun = socket.request(anyRequest, subject);
    await tick();
    kernel.emit('error', new Error('ENOBUFS'));
    await expect(overrun).rejects.toMatchObject({ code: 'netlink-lost', retriable: true });
    kernel.sendError = new Error('EPERM');
    await expect(socket.request(anyRequest, subject)).rejects.toMatchObject({ code: 'netlink-lost' });
  });

  it('gives up when no answer comes, and then ignores it', async () => {
    const controller = new AbortController();
    const clock: Clock = {
      ...systemClock,
      deadline: () => ({ signal: controller.signal, remainingMs: () => 0, [Symbol.dispose]() {} }),
    };
    const { kernel, socket } = connect(clock);
    const answer = socket.request(anyRequest, subject);
    await tick();
    controller.abort();
    await expect(answer).rejects.toMatchObject({ code: 'netlink-lost', retriable: true });
    kernel.answer([ack(kernel.seq, -1)]);
  });

  it('rejects what is under way and what waits when it is closed, twice is fine', async () => {
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

  it('keeps the event loop alive only while it waits', async () => {
    const { kernel, socket } = connect();
    expect(kernel.references).toBe(0);
    const answer = socket.request(anyRequest, subject);
    await tick();
    expect(kernel.references).toBe(1);
    kernel.answer([ack(kernel.seq)]);
    await answer;
    expect(kernel.references).toBe(0);
  });
});
