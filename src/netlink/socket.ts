import {
  Flags,
  FlagsGet,
  formatMessage,
  getS32,
  MessageType,
  type NetlinkMessage,
  parseError,
  parseMessages,
} from 'netlink';
import type { Clock } from '../clock.ts';
import { describe, NetlinkError, type RequestSubject, refused } from './errors.ts';

/** What is used of the package's `RawNetlinkSocket`. */
export interface DatagramSocket {
  on(event: 'message' | 'truncatedMessage', listener: (message: Buffer, sender: { port: number }) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  send(message: Uint8Array, options: object, callback: (error?: Error) => void): void;
  ref(): void;
  unref(): void;
  close(): void;
}

export interface NetlinkRequest {
  type: number;
  /** Besides `NLM_F_REQUEST` and `NLM_F_ACK`. */
  flags?: number;
  payload: Uint8Array[];
}

interface Pending {
  seq: number;
  subject: RequestSubject;
  parts: NetlinkMessage[];
  interrupted: boolean;
  resolve(): void;
  reject(error: Error): void;
}

// The kernel answers within the system call, so a missing answer means that it was lost.
const answerTimeoutMs = 10_000;
const dumpAttempts = 5;

/**
 * Requests over a netlink socket, one at a time in the order of the calls, each with its complete answer. Keeps the
 * event loop alive only while a request is under way.
 */
export class RequestSocket implements Disposable {
  readonly #socket: DatagramSocket;
  readonly #clock: Clock;
  #tail: Promise<unknown> = Promise.resolve();
  #pending: Pending | undefined;
  #seq = 0;
  #closed = false;

  constructor(socket: DatagramSocket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    socket.on('message', (message, sender) => this.#receive(message, sender.port));
    socket.on('truncatedMessage', () => this.#fail((subject) => lost('the answer was cut off', subject)));
    socket.on('error', (cause) => this.#fail((subject) => lost('the socket failed', subject, cause)));
    socket.unref();
  }

  /**
   * @returns the messages of the answer, without the acknowledgement
   * @throws NetlinkError `netlink-refused`, `netlink-lost`, `netlink-closed`, `netlink-malformed`
   */
  async request(request: NetlinkRequest, subject: RequestSubject): Promise<NetlinkMessage[]> {
    const flags = (request.flags ?? 0) | Flags.ACK;
    return (await this.#enqueue({ ...request, flags }, subject)).parts;
  }

  /**
   * A whole table. Starts over when the kernel says that it changed meanwhile, up to five times.
   * @throws NetlinkError as {@link request}, and `netlink-interrupted`
   */
  async dump(request: NetlinkRequest, subject: RequestSubject): Promise<NetlinkMessage[]> {
    for (let attempt = 1; attempt <= dumpAttempts; attempt++) {
      const flags = (request.flags ?? 0) | FlagsGet.DUMP;
      const { parts, interrupted } = await this.#enqueue({ ...request, flags }, subject);
      if (!interrupted) return parts;
    }
    throw new NetlinkError('netlink-interrupted', `cannot ${describe(subject)}: the table changed under each attempt`, {
      ...subject,
      retriable: true,
    });
  }

  [Symbol.dispose](): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#fail((subject) => closedError(subject));
    // Not at once: we may be inside of the socket's own receive callback, which goes on to use what close frees.
    setImmediate(() => this.#socket.close());
  }

  #enqueue(request: NetlinkRequest, subject: RequestSubject): Promise<Pending> {
    const answer = this.#tail.then(() => this.#exchange(request, subject));
    this.#tail = answer.catch(() => {});
    return answer;
  }

  async #exchange(request: NetlinkRequest, subject: RequestSubject): Promise<Pending> {
    if (this.#closed) throw closedError(subject);
    using deadline = this.#clock.deadline(answerTimeoutMs);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#seq = (this.#seq % 0xffffffff) + 1;
    const pending: Pending = { seq: this.#seq, subject, parts: [], interrupted: false, resolve, reject };
    this.#pending = pending;
    const onTimeout = () => reject(lost(`no answer within ${answerTimeoutMs} ms`, subject));
    deadline.signal.addEventListener('abort', onTimeout, { once: true });
    this.#socket.ref();
    try {
      this.#send(request, pending);
      await promise;
      return pending;
    } finally {
      this.#pending = undefined;
      if (!this.#closed) this.#socket.unref();
    }
  }

  #send({ type, flags = 0, payload }: NetlinkRequest, { seq, subject, reject }: Pending): void {
    const message = formatMessage({ type, flags: flags | Flags.REQUEST, seq, port: 0, data: payload });
    this.#socket.send(Buffer.concat(message), {}, (cause) => {
      if (cause) reject(lost('the request was not sent', subject, cause));
    });
  }

  #receive(datagram: Buffer, senderPort: number): void {
    // Port 0 is the kernel. Other processes can send to our port too; they are not answered.
    if (senderPort !== 0) return;
    try {
      for (const message of parseMessages(datagram)) {
        // Another number: the late answer to a request that we gave up.
        if (message.seq === this.#pending?.seq) this.#accept(this.#pending, message);
      }
    } catch (cause) {
      this.#fail((subject) => malformed(subject, cause));
    }
  }

  #accept(pending: Pending, message: NetlinkMessage): void {
    if (message.flags & Flags.DUMP_INTR) pending.interrupted = true;
    if (message.type === MessageType.NOOP) return;
    if (message.type !== MessageType.ERROR && message.type !== MessageType.DONE) {
      pending.parts.push(message);
      return;
    }
    const errno = message.type === MessageType.DONE ? doneErrno(message.data) : parseError(message.data, 0).errno;
    if (errno === 0) pending.resolve();
    else pending.reject(refused(errno, pending.subject));
  }

  #fail(createError: (subject: RequestSubject) => NetlinkError): void {
    const pending = this.#pending;
    pending?.reject(createError(pending.subject));
  }
}

/** A dump can fail half-way; its last message then carries a negative errno. */
function doneErrno(data: Buffer): number {
  return data.length >= 4 ? Math.min(0, getS32(data.subarray(0, 4))) : 0;
}

function lost(what: string, subject: RequestSubject, cause?: unknown): NetlinkError {
  return new NetlinkError('netlink-lost', `cannot ${describe(subject)}: ${what}`, {
    ...subject,
    cause,
    retriable: true,
  });
}

function malformed(subject: RequestSubject, cause: unknown): NetlinkError {
  return new NetlinkError('netlink-malformed', `cannot ${describe(subject)}: the answer is no netlink message`, {
    ...subject,
    cause,
  });
}

function closedError(subject: RequestSubject): NetlinkError {
  return new NetlinkError('netlink-closed', `cannot ${describe(subject)}: the connection is closed`, { ...subject });
}
