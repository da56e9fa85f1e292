import { closeSync } from 'node:fs';
import koffi from 'koffi';
import { NetlinkError, NotSentError } from './errors.ts';
import { endOfMessage, messageHeader as header, u16At, u32At } from './messages.ts';
import { addressLayout, loadSystemCalls, netlinkFamily, netlinkOptions, switchOn } from './system-calls.ts';

/** Linux `SOCK_RAW | SOCK_CLOEXEC`, `MSG_DONTWAIT | MSG_TRUNC`. */
const rawSocket = 0o2000003;
const withoutWaiting = 0x60;
/** `NLM_F_DUMP`, `NLMSG_ERROR` and `NLMSG_DONE`. */
const dumpFlags = 0x300;
const finalTypes = [2, 3];

/**
 * Size of a buffer for answers, in bytes. The kernel returns as much of a table at once as fits into 32 KiB, but one link
 * with 256 VFs takes 60 KiB.
 */
const answerBytes = 96 * 1024;
/** Unused buffers of all sockets. A buffer is needed only during an exchange, and a pod needs three sockets. */
const spareBuffers: Buffer[] = [];
const mostSpareBuffers = 4;
const kernelTimeoutMs = 10_000;

/**
 * A netlink socket for requests. Calls that may wait for the kernel's network tables run in a thread (of libuv's pool, in
 * which koffi runs asynchronous calls), never in the event loop: another process that moves a link holds the tables for 10 to
 * 30 ms, and the driver's own moves wait as long for RCU. The socket is connected to the kernel, so messages of other
 * processes cannot arrive. Reasons against RawNetlinkSocket: docs/decisions/0020-netlink-off-the-event-loop.md
 */
export class KernelSocket {
  readonly #descriptor: number;
  /** Promise that resolves when the last exchange has ended. */
  #last: Promise<void> = Promise.resolve();
  #isClosed = false;

  /**
   * Opens a socket in the thread's network namespace, where it stays.
   * @param protocol `NETLINK_*`
   * @throws NetlinkError `netlink-lost` if no socket can be opened
   */
  constructor(protocol: number) {
    const { connect, errno, socket } = loadSystemCalls();
    this.#descriptor = socket(netlinkFamily, rawSocket, protocol);
    if (this.#descriptor < 0) throw notOpened(errno());
    const kernel = Buffer.alloc(addressLayout.bytes);
    kernel.writeUInt16LE(netlinkFamily, addressLayout.family);
    if (connect(this.#descriptor, kernel, kernel.length) === 0) {
      // Without this option, the kernel returns whole tables, whatever is requested. Kernels before 4.20 lack it.
      switchOn(this.#descriptor, netlinkOptions.strictChecks);
      return;
    }
    const code = errno();
    closeSync(this.#descriptor);
    throw notOpened(code);
  }

  /**
   * Sends one or more requests, which the kernel executes one after the other. The answer is complete after the answer to the
   * last request; a request for a table must be alone. Exchanges also run one after the other. An exchange that times out
   * before its turn is not sent; a request that has been sent may still be executed after the timeout.
   * @param onDatagram called with each datagram of the answer, whose bytes are overwritten after the call
   * @throws Error if a system call fails, the answer is cut off, or the kernel has not answered after 10 s; NotSentError in
   * the last case if the requests will not be sent any more
   */
  exchange(requests: Buffer, onDatagram: (datagram: Buffer) => void): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    let [isLate, isStarted] = [false, false];
    // A plain timer is used: all requests pass here, and an AbortSignal and a clock for each would take longer than the
    // kernel's part.
    const timer = setTimeout(() => {
      isLate = true;
      const message = `the kernel does not answer within ${kernelTimeoutMs} ms`;
      reject(isStarted ? new Error(message) : new NotSentError(message));
    }, kernelTimeoutMs);
    const start = () => {
      isStarted = !isLate && !this.#isClosed;
      return isStarted;
    };
    this.#last = this.#last
      .then(() => this.#exchange(requests, start, onDatagram))
      .then(resolve, reject)
      .finally(() => clearTimeout(timer));
    return promise;
  }

  /** Resolves when the kernel has finished all exchanges that were started before, including those that have timed out. */
  ended(): Promise<void> {
    return this.#last;
  }

  close(): void {
    this.#isClosed = true;
    // Closing is deferred until no exchange uses the descriptor: its number may be reused for another file.
    void this.#last.then(() => closeSync(this.#descriptor));
  }

  async #exchange(request: Buffer, isWanted: () => boolean, onDatagram: (datagram: Buffer) => void): Promise<void> {
    const { sendAsync } = loadSystemCalls();
    const sent = await sendAsync(this.#descriptor, request, isWanted);
    if (sent !== request.length) throw new Error('send(2) failed');
    const buffer = spareBuffers.pop() ?? Buffer.allocUnsafeSlow(answerBytes);
    try {
      await this.#receive(buffer, request, onDatagram);
    } finally {
      if (spareBuffers.length < mostSpareBuffers) spareBuffers.push(buffer);
    }
  }

  /**
   * Receives the answer. It has arrived when the call that sends the request returns, except for a table: each read makes the
   * kernel collect more of the table.
   */
  async #receive(buffer: Buffer, request: Buffer, onDatagram: (datagram: Buffer) => void): Promise<void> {
    const { errno, recv, recvAsync } = loadSystemCalls();
    const seq = lastSeq(request);
    const isDump = (u16At(request, header.flags) & dumpFlags) === dumpFlags;
    while (!this.#isClosed) {
      const size = isDump
        ? await recvAsync(this.#descriptor, buffer, withoutWaiting)
        : recv(this.#descriptor, buffer, buffer.length, withoutWaiting);
      if (size < 0) {
        if (!isDump && errno() === koffi.os.errno.EAGAIN) return;
        throw new Error(`recv(2) failed${isDump ? '' : ` with errno ${errno()}`}`);
      }
      if (size > buffer.length) throw new Error('the answer was cut off');
      const datagram = buffer.subarray(0, size);
      onDatagram(datagram);
      if (isFinal(datagram, seq)) return;
    }
  }
}

/** Returns the sequence number of the last message in a buffer. */
function lastSeq(messages: Buffer): number {
  let at = 0;
  for (
    let next = endOfMessage(messages, 0);
    next + header.bytes <= messages.length;
    next = endOfMessage(messages, next)
  ) {
    at = next;
  }
  return u32At(messages, at + header.seq);
}

/** Returns whether a datagram ends the answer to a request. */
function isFinal(datagram: Buffer, seq: number): boolean {
  for (let at = 0; at + header.bytes <= datagram.length; at = endOfMessage(datagram, at)) {
    const isOurs = u32At(datagram, at + header.seq) === seq;
    if (isOurs && finalTypes.includes(u16At(datagram, at + header.type))) return true;
  }
  return false;
}

function notOpened(errno: number): NetlinkError {
  const message = `cannot open a netlink socket (errno ${errno})`;
  const hint = 'too many open files, or the process may not use netlink';
  return new NetlinkError('netlink-lost', message, { operation: 'open a netlink socket', retriable: true, hint });
}
