import { EventEmitter } from 'node:events';
import { formatMessage, parseMessage } from 'netlink';
import type { Clock } from '../../src/lib/clock.ts';
import { EthtoolConnection, RtnlConnection } from '../../src/node/netlink/index.ts';
import { type DatagramSocket, RequestSocket } from '../../src/node/netlink/socket.ts';

/** Time stands still: an unanswered request ends when its connection is closed. */
const stoppedClock: Clock = {
  nowMs: () => 0,
  deadline: () => ({
    signal: new AbortController().signal,
    remainingMs: () => 1,
    [Symbol.dispose]: () => undefined,
  }),
  sleep: () => Promise.reject(new Error('nothing here sleeps')),
};

/** The kernel's end of a netlink socket, which answers each request with the given bytes. */
class KernelEnd extends EventEmitter implements DatagramSocket {
  readonly #answer: (seq: number) => Uint8Array;

  constructor(answer: (seq: number) => Uint8Array) {
    super();
    this.#answer = answer;
  }

  send(message: Uint8Array, _options: object, callback: (error?: Error) => void): void {
    const { seq } = parseMessage(Buffer.from(message)).x;
    queueMicrotask(() => {
      callback();
      this.emit('message', Buffer.from(this.#answer(seq)), { port: 0 });
    });
  }

  ref(): void {}
  unref(): void {}
  close(): void {}
}

/**
 * A connection to a kernel with given answers.
 * @param answer the datagram for the request with this number
 */
export function connectKernel(answer: (seq: number) => Uint8Array): RtnlConnection {
  return new RtnlConnection(new RequestSocket(new KernelEnd(answer), stoppedClock));
}

/** The same for generic netlink. */
export function connectEthtool(answer: (seq: number) => Uint8Array): EthtoolConnection {
  return new EthtoolConnection(new RequestSocket(new KernelEnd(answer), stoppedClock));
}

/** A complete answer of one message: acknowledged like that to a single request, and ended like a dump. */
export function completeAnswer(seq: number, type: number, payload: Uint8Array): Buffer {
  const acknowledgement = { type: 2, flags: 0, seq, port: 0, data: [Buffer.alloc(20)] };
  return Buffer.concat([
    ...formatMessage({ type, flags: 2, seq, port: 0, data: [payload] }),
    ...formatMessage({ type: 3, flags: 2, seq, port: 0, data: [Buffer.alloc(4)] }),
    ...formatMessage(acknowledgement),
  ]);
}
