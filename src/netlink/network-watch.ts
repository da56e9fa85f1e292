import { closeSync, openSync, readdirSync } from 'node:fs';
import { Protocol, RawNetlinkSocket } from 'netlink';
import { NetlinkError } from './errors.ts';
import { type NetnsHandle, openInNetns } from './netns.ts';
import type { DatagramSocket } from './socket.ts';
import { addressLayout, loadSocketCalls, netlinkFamily, netlinkOptions, switchOn } from './socket-calls.ts';

/** `RTNLGRP_*` of Linux `rtnetlink.h`: links, IPv4 and IPv6 addresses. */
const networkGroups = [1, 5, 9];
/** The kernel's own events, not those that a device manager sends on. Source: Linux `lib/kobject_uevent.c`. */
const deviceGroups = [1];

/**
 * Reports that something changed in a network namespace, or among the node's devices; what, is to be read anew. Keeps the
 * namespace alive as long as it is open, and with it a VF that is in there; does not keep the process alive.
 */
export class NetworkWatch implements Disposable {
  readonly #sockets: Pick<DatagramSocket, 'close'>[] = [];
  readonly #onChange: () => void;
  #open = true;

  private constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /**
   * Links and addresses of a namespace.
   * @param onChange called for each message of the kernel, also when some of them were lost
   * @throws NetlinkError `netns-refused`, `netlink-lost`
   */
  static open(netns: NetnsHandle, onChange: () => void): NetworkWatch {
    const watch = new NetworkWatch(onChange);
    watch.#add(openInNetns(netns, () => joinGroups(Protocol.ROUTE, networkGroups)));
    return watch;
  }

  /**
   * Links and addresses of the namespace that the process is in, and devices: added, removed, bound to a kernel driver or
   * released by it.
   * @param onChange as that of {@link open}
   * @throws NetlinkError `netlink-lost`
   */
  static openHost(onChange: () => void): NetworkWatch {
    const watch = new NetworkWatch(onChange);
    watch.#add(joinGroups(Protocol.ROUTE, networkGroups));
    watch.#add(joinGroups(Protocol.KOBJECT_UEVENT, deviceGroups));
    return watch;
  }

  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    // Not at once: we may be inside of the socket's own receive callback, which goes on to use what close frees.
    setImmediate(() => {
      for (const socket of this.#sockets) socket.close();
    });
  }

  #add(socket: DatagramSocket): void {
    const report = () => {
      if (this.#open) this.#onChange();
    };
    // Port 0 is the kernel: other processes cannot wake us.
    socket.on('message', (_message, sender) => sender.port === 0 && report());
    socket.on('truncatedMessage', report);
    socket.on('error', report);
    socket.unref();
    this.#sockets.push(socket);
  }
}

function joinGroups(protocol: Protocol, groups: readonly number[]): RawNetlinkSocket {
  const expected = lowestFreeDescriptor();
  const socket = new RawNetlinkSocket(protocol);
  dropSilently(socket.address().port, expected);
  for (const group of groups) socket.addMembership(group);
  return socket;
}

/** What the kernel numbers the next file with, unless a thread opens one first. */
function lowestFreeDescriptor(): number {
  const descriptor = openSync('/proc/self/fd', 'r');
  closeSync(descriptor);
  return descriptor;
}

/**
 * Lets the kernel drop what a socket has no room for, without an error: what is in the socket by then tells of the change as
 * well. The package (0.3.0) ends the process where it hears of an error while it polls, so a pod that changes its links faster
 * than they are read would end the driver. It does not tell the descriptor of its socket, so that is looked for by the port;
 * other sockets of ours with the same one, in other namespaces, are none the worse for it.
 * @param expected the descriptor that is looked at first: a driver has some for each pod
 * @throws NetlinkError `netlink-lost` if it is not found
 */
function dropSilently(port: number, expected: number): void {
  const { getsockname } = loadSocketCalls();
  const hasPort = (descriptor: number) => {
    const name = Buffer.alloc(addressLayout.bytes);
    const size = Buffer.from([addressLayout.bytes, 0, 0, 0]);
    if (getsockname(descriptor, name, size) !== 0) return false;
    const isNetlink = name.readUInt16LE(addressLayout.family) === netlinkFamily;
    return isNetlink && name.readUInt32LE(addressLayout.port) === port;
  };
  const withPort = hasPort(expected) ? [expected] : readdirSync('/proc/self/fd').map(Number).filter(hasPort);
  const found = withPort.filter((descriptor) => switchOn(descriptor, netlinkOptions.noOverflowErrors));
  if (found.length > 0) return;
  throw new NetlinkError('netlink-lost', `cannot set up a netlink socket: none has port ${port}`, {
    operation: 'watch a network namespace',
    retriable: true,
    hint: 'the process needs /proc to find its own sockets',
  });
}
