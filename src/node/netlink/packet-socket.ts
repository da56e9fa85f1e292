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
/** Offsets in `struct sockaddr_ll`, and its size, in bytes. Source: packet(7). */
const addressLayout = { bytes: 20, family: 0, protocol: 2, index: 4 } as const;
const maxFrameBytes = 2_048;
/** Buffer for received frames of all sockets: most calls find no frame, and frames are copied. */
const received = Buffer.allocUnsafeSlow(maxFrameBytes);

/**
 * Protocols of frames to receive: `ETH_P_*` of Linux `if_ether.h`. `none` receives nothing; `all` also receives frames that
 * the host itself sends.
 */
export const EtherType = { none: 0, all: 3, arp: 0x0806, ipv6: 0x86dd } as const;
type EtherType = (typeof EtherType)[keyof typeof EtherType];

/**
 * Socket that sends and receives Ethernet frames on one interface of a network namespace. Needs CAP_NET_RAW in that
 * namespace. Never waits.
 */
export class PacketSocket implements Disposable {
  readonly #descriptor: number;
  readonly #subject: string;
  #isClosed = false;

  /**
   * @param index index of the interface
   * @throws NetlinkError `packet-refused` with `errno`
   */
  constructor(netns: NetnsHandle, index: number, protocol: EtherType) {
    const { bind, errno, socket } = loadSystemCalls();
    this.#subject = `link #${assertIndex(index)} in ${netns.path}`;
    // The protocol is set only by bind: until then, a socket with a protocol would receive frames of all interfaces.
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
   * @param frame frame with its Ethernet header, without a checksum
   * @throws NetlinkError `packet-refused`: `ENETDOWN` while the interface is down, `ENOBUFS` if its queue drops the frame
   */
  send(frame: Uint8Array): void {
    const { send, errno } = loadSystemCalls();
    if (send(this.#descriptor, Buffer.from(frame), frame.length, withoutWaiting) === frame.length) return;
    throw this.#refused('send a frame by', errno());
  }

  /** Returns the next received frame, truncated to 2 KiB; `undefined` if there is none. */
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

/** Lock for closing one socket at a time: many together would occupy all threads. */
const closes = new KeyedMutex();

/**
 * Closes a packet socket in a thread. The kernel returns only after all processors have released the socket, which takes 5 to
 * 30 ms.
 */
function closeInThread(descriptor: number): void {
  // The result is ignored: no failure of close could be handled.
  void closes.run('', () => new Promise((resolve) => close(descriptor, () => resolve(undefined))));
}
