import { readdirSync } from 'node:fs';
import koffi from 'koffi';
import { Protocol, RawNetlinkSocket } from 'netlink';
import { NetlinkError } from './errors.ts';
import { type NetnsHandle, openInNetns } from './netns.ts';
import type { DatagramSocket } from './socket.ts';

/** `RTNLGRP_*` of Linux `rtnetlink.h`: links, IPv4 and IPv6 addresses. */
const groups = [1, 5, 9];
/** Linux `AF_NETLINK`, and where the port is in a `struct sockaddr_nl`. */
const netlinkFamily = 16;
const address = { bytes: 12, port: 4 } as const;
/** Linux `SOL_NETLINK`, `NETLINK_NO_ENOBUFS`. */
const withoutErrors = { level: 270, option: 5 } as const;

/**
 * Tells that something about the links or addresses of a network namespace changed; what, is to be read anew. Keeps the
 * namespace alive as long as it is open, and with it a VF that is in there; does not keep the process alive.
 */
export class NetworkWatch implements Disposable {
  readonly #socket: Pick<DatagramSocket, 'close'>;
  #open = true;

  private constructor(socket: Pick<DatagramSocket, 'close'>) {
    this.#socket = socket;
  }

  /**
   * @param onChange called for each message of the kernel, also when some of them were lost
   * @throws NetlinkError `netns-refused`, `netlink-lost`
   */
  static open(netns: NetnsHandle, onChange: () => void): NetworkWatch {
    const socket = openInNetns(netns, () => {
      const created = new RawNetlinkSocket(Protocol.ROUTE);
      dropSilently(created.address().port);
      for (const group of groups) created.addMembership(group);
      return created;
    });
    const watch = new NetworkWatch(socket);
    const tell = () => {
      if (watch.#open) onChange();
    };
    // Port 0 is the kernel: other processes of the pod cannot wake us.
    socket.on('message', (_message, sender) => sender.port === 0 && tell());
    socket.on('truncatedMessage', tell);
    socket.on('error', tell);
    socket.unref();
    return watch;
  }

  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    // Not at once: we may be inside of the socket's own receive callback, which goes on to use what close frees.
    setImmediate(() => this.#socket.close());
  }
}

/**
 * Lets the kernel drop what a socket has no room for, without an error: what is in the socket by then tells of the change as
 * well. The package (0.3.0) ends the process where it hears of an error while it polls, so a pod that changes its links faster
 * than they are read would end the driver. It does not tell the descriptor of its socket, so that is looked for by the port;
 * other sockets of ours with the same one, in other namespaces, are none the worse for it.
 * @throws NetlinkError `netlink-lost` if it is not found
 */
function dropSilently(port: number): void {
  const { getsockname, setsockopt } = loadCalls();
  const on = Buffer.from([1, 0, 0, 0]);
  const found = readdirSync('/proc/self/fd')
    .map(Number)
    .filter((descriptor) => {
      const name = Buffer.alloc(address.bytes);
      const size = Buffer.from([address.bytes, 0, 0, 0]);
      if (getsockname(descriptor, name, size) !== 0 || name.readUInt16LE(0) !== netlinkFamily) return false;
      if (name.readUInt32LE(address.port) !== port) return false;
      return setsockopt(descriptor, withoutErrors.level, withoutErrors.option, on, on.length) === 0;
    });
  if (found.length > 0) return;
  throw new NetlinkError('netlink-lost', `cannot set up a netlink socket: none has port ${port}`, {
    operation: 'watch a network namespace',
    retriable: true,
    hint: 'the process needs /proc to find its own sockets',
  });
}

interface Calls {
  getsockname: (descriptor: number, address: Buffer, size: Buffer) => number;
  setsockopt: (descriptor: number, level: number, option: number, value: Buffer, bytes: number) => number;
}

let resolved: Calls | undefined;

/** Resolved once: each lookup by koffi costs memory for good. */
function loadCalls(): Calls {
  if (resolved !== undefined) return resolved;
  const library = koffi.load(null);
  resolved = {
    getsockname: library.func('int getsockname(int fd, void *address, uint32_t *size)'),
    setsockopt: library.func('int setsockopt(int fd, int level, int option, const void *value, uint32_t size)'),
  };
  return resolved;
}
