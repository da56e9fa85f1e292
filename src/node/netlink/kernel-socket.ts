import { closeSync } from 'node:fs';
import koffi from 'koffi';
import { NetlinkError } from './errors.ts';
import { endOfMessage, messageHeader as header, u16At, u32At } from './messages.ts';
import { addressLayout, loadSystemCalls, netlinkFamily, netlinkOptions, switchOn } from './system-calls.ts';

/** Linux `SOCK_RAW | SOCK_CLOEXEC`, `MSG_DONTWAIT | MSG_TRUNC`. */
const rawSocket = 0o2000003;
const withoutWaiting = 0x60;
/** `NLM_F_DUMP`, `NLMSG_ERROR` and `NLMSG_DONE`. */
const dumpFlags = 0x300;
const finalTypes = [2, 3];

/** The kernel returns as much of a table at once as fits, up to 32 KiB; one link with 256 VFs takes 60 KiB. */
const answerBytes = 96 * 1024;
/** Free buffers for the answers of all sockets: each is needed for one exchange, and a pod's life uses three sockets. */
const spareBuffers: Buffer[] = [];
const mostSpareBuffers = 4;
const kernelTimeoutMs = 10_000;

/**
 * A netlink socket for requests. Calls that may wait for the kernel's network tables run in a thread (of libuv's pool,
 * where koffi runs asynchronous calls), never in the event loop: another process that moves a link holds the tables for 10
 * to 30 ms, and a move of ours waits as long for RCU. Messages of other processes cannot arrive: the socket is connected to
 * the kernel. Why not RawNetlinkSocket: docs/decisions/0020-netlink-off-the-event-loop.md
 */
export class KernelSocket {
  readonly #descriptor: number;
  /** Resolves when the last exchange has ended. */
  #last: Promise<void> = Promise.resolve();
  #isClosed = false;

  /**
   * Opens the socket in this thread's network namespace, where it stays.
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
      // Without this option the kernel returns whole tables, whatever is requested. Kernels before 4.20 lack it.
      switchOn(this.#descriptor, netlinkOptions.strictChecks);
      return;
    }
    const code = errno();
    closeSync(this.#descriptor);
    throw notOpened(code);
  }

  /**
   * Sends one or more requests, which are executed one after the other; the last one decides when the answer is complete,
   * and a request for a table must be alone. Exchanges run one after the other. One that is given up before it is sent is
   * not sent; the kernel may still execute one that hangs.
   * @param onDatagram gets each datagram of the answer, whose bytes are overwritten after the call
   * @throws Error if a system call fails, the answer is cut off, or a hung kernel has not answered after 10 s
   */
  exchange(requests: Buffer, onDatagram: (datagram: Buffer) => void): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    let isLate = false;
    // Every request passes here: a signal and a clock for each take longer than the kernel's part.
    const timer = setTimeout(() => {
      isLate = true;
      reject(new Error(`the kernel does not answer within ${kernelTimeoutMs} ms`));
    }, kernelTimeoutMs);
    this.#last = this.#last
      .then(() => this.#exchange(requests, () => !isLate && !this.#isClosed, onDatagram))
      .then(resolve, reject)
      .finally(() => clearTimeout(timer));
    return promise;
  }

  /** Resolves when the kernel has finished all exchanges that were started before, also those given up. */
  ended(): Promise<void> {
    return this.#last;
  }

  close(): void {
    this.#isClosed = true;
    // Deferred: a closed descriptor's number may be reused for another file.
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
   * Receives the answer, which is there when the request's call returns; but each read of a table makes the kernel look for
   * more.
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

/** Returns the sequence number of the last of several messages. */
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
