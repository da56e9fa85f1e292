import { Flags, FlagsGet, MessageType, type Protocol } from 'netlink';
import { type Clock, systemClock } from '../../lib/clock.ts';
import { whileBusy } from '../../lib/while-busy.ts';
import {
  describe,
  errnoName,
  factsOf,
  isBusy,
  malformed,
  NetlinkError,
  type RequestSubject,
  refused,
} from './errors.ts';
import { KernelSocket } from './kernel-socket.ts';
import {
  decodeMessages,
  encodeMessage,
  messageHeader as header,
  type NetlinkMessage,
  u16At,
  u32At,
} from './messages.ts';
import { type NetnsHandle, openInNetns } from './netns.ts';

export interface NetlinkRequest {
  type: number;
  /** Flags besides `NLM_F_REQUEST` and `NLM_F_ACK`. */
  flags?: number;
  payload: Uint8Array[];
  /**
   * Whether the answer can have tens of kilobytes. The kernel drops the part of an answer that does not fit into the socket's
   * buffer.
   */
  isLarge?: boolean;
  /**
   * Names of errors with which the kernel reports that nothing exists: the answer is then empty. Creating an error takes
   * longer than the request, and a pod's links have six qdiscs and groups of settings that do not exist.
   */
  absent?: readonly string[];
  /**
   * Returns whether a message of a table is kept. Other messages are dropped as they arrive: a node can have a million
   * routes.
   */
  keeps?: (data: Buffer) => boolean;
}

/** Limit for reading a table: a maximum number of messages, and a number of bytes after which no further message is kept. */
export interface DumpLimit {
  messages: number;
  bytes: number;
}

const noLimit: DumpLimit = { messages: Infinity, bytes: Infinity };

interface Pending {
  seq: number;
  message: Buffer;
  /** Whether the request is sent without other requests. */
  isAlone: boolean;
  limit: DumpLimit;
  absent: readonly string[];
  keeps: ((data: Buffer) => boolean) | undefined;
  subject: RequestSubject;
  parts: NetlinkMessage[];
  partBytes: number;
  interrupted: boolean;
  resolve(): void;
  reject(error: Error): void;
}

const dumpAttempts = 5;
/** Maximum number of requests sent together: their answers must fit into the socket's buffer. */
const maxTogether = 16;
/** Length of an `NLMSG_DONE` with its errno, in bytes. */
const doneBytes = header.bytes + 4;

type SocketCalls = Pick<KernelSocket, 'exchange' | 'ended' | 'close'>;

/**
 * Sends requests over a netlink socket, in the order of the calls, and returns the complete answer to each. Waiting requests
 * are sent together; the kernel executes them one after the other, even if one of them fails. A request for a table, or with
 * a large answer, is sent alone.
 */
export class RequestSocket implements Disposable {
  readonly #socket: SocketCalls;
  readonly #clock: Clock;
  readonly #queue: Pending[] = [];
  /** Requests that the kernel has not answered yet, by sequence number. */
  readonly #pending = new Map<number, Pending>();
  #seq = 0;
  #isBusy = false;
  #closed = false;

  constructor(socket: SocketCalls, clock = systemClock) {
    this.#socket = socket;
    this.#clock = clock;
  }

  /** Opens a socket. @param netns default: the process's own namespace @throws NetlinkError `netns-refused`, `netlink-lost` */
  static open(protocol: Protocol, netns?: NetnsHandle): RequestSocket {
    const create = () => new KernelSocket(protocol);
    return new RequestSocket(netns === undefined ? create() : openInNetns(netns, create));
  }

  /**
   * Makes a request. While the kernel is busy, repeats it for a second.
   * @returns the messages of the answer, without the acknowledgement
   * @throws NetlinkError `netlink-refused`, `netlink-lost`, `netlink-closed`, `netlink-malformed`
   */
  async request(request: NetlinkRequest, subject: RequestSubject): Promise<NetlinkMessage[]> {
    const flags = (request.flags ?? 0) | Flags.ACK;
    return (await whileBusy(this.#clock, isBusy, () => this.#enqueue({ ...request, flags }, subject))).parts;
  }

  /**
   * Reads a whole table. Starts over when the kernel reports that the table has changed during the read, up to five times.
   * @param limit limit at which a longer table is cut off, and not read again: see {@link isCutOff}
   * @throws NetlinkError as {@link request}, and `netlink-interrupted`
   */
  async dump(request: NetlinkRequest, subject: RequestSubject, limit = noLimit): Promise<NetlinkMessage[]> {
    for (let attempt = 1; attempt <= dumpAttempts; attempt++) {
      const flags = (request.flags ?? 0) | FlagsGet.DUMP;
      const ask = () => this.#enqueue({ ...request, flags }, subject, limit);
      const answer = await whileBusy(this.#clock, isBusy, ask);
      if (isFull(answer) || !answer.interrupted) return answer.parts;
    }
    const message = `cannot ${describe(subject)}: the table changed during each attempt`;
    throw new NetlinkError('netlink-interrupted', message, { ...factsOf(subject), retriable: true });
  }

  /**
   * Resolves when the kernel has finished all requests that were sent before, including requests that have already failed
   * here.
   */
  ended(): Promise<void> {
    return this.#socket.ended();
  }

  [Symbol.dispose](): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const { reject, subject } of this.#queue.splice(0)) reject(closedError(subject));
    this.#fail((subject) => closedError(subject));
    this.#socket.close();
  }

  /** Queues a request. @param limit limit for a table; absent for other requests */
  #enqueue(
    { type, flags = 0, payload, isLarge = false, absent = [], keeps }: NetlinkRequest,
    subject: RequestSubject,
    limit?: DumpLimit,
  ): Promise<Pending> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(closedError(subject));
      this.#seq = (this.#seq % 0xffffffff) + 1;
      const seq = this.#seq;
      const pending: Pending = {
        seq,
        message: encodeMessage(type, flags | Flags.REQUEST, seq, payload),
        isAlone: limit !== undefined || isLarge,
        limit: limit ?? noLimit,
        absent,
        keeps,
        subject,
        parts: [],
        partBytes: 0,
        interrupted: false,
        resolve: () => resolve(pending),
        reject,
      };
      this.#queue.push(pending);
      // Sending is deferred, so that requests made at the same time are sent together.
      if (!this.#isBusy && this.#queue.length === 1) queueMicrotask(() => void this.#ask());
    });
  }

  /** Sends requests until none is queued. */
  async #ask(): Promise<void> {
    if (this.#isBusy || this.#closed) return;
    this.#isBusy = true;
    for (let together = this.#next(); together.length > 0; together = this.#next()) await this.#exchange(together);
    this.#isBusy = false;
  }

  /** Returns the requests to send together next. */
  #next(): Pending[] {
    const [first] = this.#queue;
    if (first?.isAlone) return this.#queue.splice(0, 1);
    const nextAlone = this.#queue.findIndex(({ isAlone }) => isAlone);
    const count = nextAlone === -1 ? this.#queue.length : nextAlone;
    return this.#queue.splice(0, Math.min(count, maxTogether));
  }

  /** Sends requests. Resolves when each of them has its answer or has failed. */
  async #exchange(together: readonly Pending[]): Promise<void> {
    for (const pending of together) this.#pending.set(pending.seq, pending);
    const [first, ...others] = together.map(({ message }) => message);
    const message = others.length === 0 ? first : Buffer.concat([first!, ...others]);
    try {
      await this.#socket.exchange(message!, (datagram) => this.#receive(datagram));
      this.#fail((subject) => lost('the kernel has not answered', subject));
    } catch (cause) {
      this.#fail((subject) => lost('the exchange with the kernel failed', subject, cause));
    }
  }

  #receive(datagram: Buffer): void {
    // A dump runs alone. Messages beyond its limit are not even parsed, unless the dump may end with them.
    const [first] = this.#pending.values();
    if (first !== undefined && isFull(first) && !mayEndDump(datagram)) return;
    try {
      // The datagram is copied, since decoded values may refer to it.
      for (const message of decodeMessages(Buffer.from(datagram))) {
        // An unknown number belongs to a late answer to an abandoned request.
        const pending = this.#pending.get(message.seq);
        if (pending !== undefined) this.#accept(pending, message);
      }
    } catch (cause) {
      this.#fail((subject) => malformed(subject, cause, 'is not a netlink message'));
    }
  }

  #accept(pending: Pending, message: NetlinkMessage): void {
    if (message.flags & Flags.DUMP_INTR) pending.interrupted = true;
    if (message.type === MessageType.NOOP) return;
    if (message.type !== MessageType.ERROR && message.type !== MessageType.DONE) {
      if (isFull(pending)) return;
      if (pending.keeps?.(message.data) === false) return;
      // The message is copied, so that one kept message of a large table does not keep its whole datagram.
      pending.parts.push(pending.keeps === undefined ? message : { ...message, data: Buffer.from(message.data) });
      pending.partBytes += message.data.length;
      return;
    }
    const errno = message.type === MessageType.DONE ? doneErrno(message.data) : message.data.readInt32LE(0);
    this.#pending.delete(pending.seq);
    const isAbsent = errno !== 0 && pending.absent.includes(errnoName(errno));
    if (isAbsent) pending.parts = [];
    if (errno === 0 || isAbsent) pending.resolve();
    else pending.reject(refused(errno, pending.subject));
  }

  #fail(createError: (subject: RequestSubject) => NetlinkError): void {
    const failed = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject, subject } of failed) reject(createError(subject));
  }
}

/** Returns whether messages of a table reach a limit, so that further messages may be missing. */
export function isCutOff(messages: readonly NetlinkMessage[], { messages: most, bytes }: DumpLimit): boolean {
  return messages.length >= most || messages.reduce((sum, { data }) => sum + data.length, 0) >= bytes;
}

function isFull({ parts, partBytes, limit }: Pending): boolean {
  return parts.length >= limit.messages || partBytes >= limit.bytes;
}

/**
 * Returns whether a dump may end with a datagram. An error is the only message in its datagram, and an `NLMSG_DONE` is the
 * last message.
 * Source: Linux `netlink_dump` and `netlink_ack`.
 */
function mayEndDump(datagram: Buffer): boolean {
  if (datagram.length < doneBytes) return true;
  const lastAt = datagram.length - doneBytes;
  const isDone =
    u32At(datagram, lastAt + header.length) === doneBytes && u16At(datagram, lastAt + header.type) === MessageType.DONE;
  return isDone || u16At(datagram, header.type) === MessageType.ERROR;
}

/** Returns the errno of an `NLMSG_DONE`. It is negative if the dump has failed half-way. */
function doneErrno(data: Buffer): number {
  return data.length >= 4 ? Math.min(0, data.readInt32LE(0)) : 0;
}

function lost(what: string, subject: RequestSubject, cause?: unknown): NetlinkError {
  const message = `cannot ${describe(subject)}: ${what}`;
  return new NetlinkError('netlink-lost', message, { ...factsOf(subject), cause, retriable: true });
}

function closedError(subject: RequestSubject): NetlinkError {
  return new NetlinkError('netlink-closed', `cannot ${describe(subject)}: the connection is closed`, factsOf(subject));
}
