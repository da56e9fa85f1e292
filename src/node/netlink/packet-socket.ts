import { close } from 'node:fs';
import { KeyedMutex } from '../../lib/keyed-mutex.ts';
import { assertIndex } from './checks.ts';
import { NetlinkError } from './errors.ts';
import { errnoName, type NetnsHandle, openInNetns } from './netns.ts';
import { loadSystemCalls } from './system-calls.ts';

/** Linux `AF_PACKET`, `SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC`, `MSG_DONTWAIT`. */
const packetFamily = 17;
const rawSocket = 0o2004003;
const withoutWaiting = 0x40;
/** `struct sockaddr_ll`. Source: packet(7). */
const addressLayout = { bytes: 20, family: 0, protocol: 2, index: 4 } as const;
const maxFrameBytes = 2_048;
/** Receives each frame: most calls find none, and a call returns before the next one. */
const received = Buffer.allocUnsafeSlow(maxFrameBytes);

/** `ETH_P_*` of Linux `if_ether.h`. `none` receives nothing; `all` also receives what the host itself sends. */
export const EtherType = { none: 0, all: 3, arp: 0x0806, ipv6: 0x86dd } as const;
type EtherType = (typeof EtherType)[keyof typeof EtherType];

/** Sends and receives Ethernet frames on one interface of a network namespace. Needs CAP_NET_RAW in that namespace. Never waits. */
export class PacketSocket implements Disposable {
  readonly #descriptor: number;
  readonly #subject: string;
  #isClosed = false;

  /**
   * @param index of the interface
   * @throws NetlinkError `packet-refused` with `errno`
   */
  constructor(netns: NetnsHandle, index: number, protocol: EtherType) {
    const { bind, errno, socket } = loadSystemCalls();
    this.#subject = `link #${assertIndex(index)} in ${netns.path}`;
    // With a protocol it would receive frames of all interfaces until it is bound.
    const { descriptor, code } = openInNetns(netns, () => {
      const descriptor = socket(packetFamily, rawSocket, 0);
      return { descriptor, code: errno() };
    });
    if (descriptor < 0) throw this.#refused('open a packet socket for', code);
    const address = Buffer.alloc(addressLayout.bytes);
    address.writeUInt16LE(packetFamily, addressLayout.family);
    address.writeUInt16BE(protocol, addressLayout.protocol);
    address.writeInt32LE(index, addressLayout.index);
    this.#descriptor = descriptor;
    if (bind(descriptor, address, address.length) === 0) return;
    const failure = this.#refused('bind a packet socket to', errno());
    closeInThread(descriptor);
    throw failure;
  }

  /**
   * Queues a frame on the interface.
   * @param frame with its Ethernet header, without a checksum
   * @throws NetlinkError `packet-refused`: `ENETDOWN` while the interface is down, `ENOBUFS` if its queue drops the frame
   */
  send(frame: Uint8Array): void {
    const { send, errno } = loadSystemCalls();
    if (send(this.#descriptor, Buffer.from(frame), frame.length, withoutWaiting) === frame.length) return;
    throw this.#refused('send a frame by', errno());
  }

  /** Returns the next received frame, truncated to 2 KiB. */
  receive(): Buffer | undefined {
    const bytes = loadSystemCalls().recv(this.#descriptor, received, received.length, withoutWaiting);
    return bytes < 0 ? undefined : Buffer.from(received.subarray(0, bytes));
  }

  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    closeInThread(this.#descriptor);
  }

  #refused(what: string, errno: number): NetlinkError {
    const name = errnoName(errno);
    const hints: Record<string, string> = {
      EPERM: 'give the process CAP_NET_RAW',
      EAFNOSUPPORT: 'the kernel has no packet sockets: CONFIG_PACKET',
    };
    const message = `cannot ${what} ${this.#subject} (${name})`;
    const hint = hints[name];
    return new NetlinkError('packet-refused', message, { errno: name, hint });
  }
}

/** One at a time: many together would occupy all threads. */
const closes = new KeyedMutex();

/** Closes a packet socket in a thread: the kernel returns after all its processors have released it, which takes 5 to 30 ms. */
function closeInThread(descriptor: number): void {
  // Closing cannot fail in a way that could be handled.
  void closes.run('', () => new Promise((resolve) => close(descriptor, () => resolve(undefined))));
}
