import { closeSync, openSync, readdirSync } from 'node:fs';
import { Protocol, RawNetlinkSocket } from 'netlink';
import { NetlinkError } from './errors.ts';
import { type NetnsHandle, openInNetns } from './netns.ts';
import { addressLayout, loadSystemCalls, netlinkFamily, netlinkOptions, switchOn } from './system-calls.ts';

/** Groups of links, IPv4 and IPv6 addresses: `RTNLGRP_*` of Linux `rtnetlink.h`. */
const networkGroups = [1, 5, 9];
/** Group of the kernel's own events, not of those that a device manager forwards. Source: Linux `lib/kobject_uevent.c`. */
const deviceGroups = [1];

/**
 * Reports changes in a network namespace or among the node's devices, without saying what has changed. While it is open, it
 * keeps the namespace alive, and with it a VF in the namespace; it does not keep the process alive.
 */
export class NetworkWatch implements Disposable {
  readonly #sockets: RawNetlinkSocket[] = [];
  readonly #onChange: () => void;
  #open = true;

  private constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /**
   * Watches links and addresses of a namespace.
   * @param onChange called for each message of the kernel, and when messages were lost
   * @throws NetlinkError `netns-refused`, `netlink-lost`
   */
  static open(netns: NetnsHandle, onChange: () => void): NetworkWatch {
    const watch = new NetworkWatch(onChange);
    watch.#add(openInNetns(netns, () => joinGroups(Protocol.ROUTE, networkGroups)));
    return watch;
  }

  /**
   * Watches links and addresses of the process's own namespace, and devices that are added, removed, bound to a kernel driver
   * or unbound.
   * @param onChange as in {@link open}
   * @throws NetlinkError `netlink-lost`
   */
  static openHost(onChange: () => void): NetworkWatch {
    const watch = new NetworkWatch(onChange);
    try {
      watch.#add(joinGroups(Protocol.ROUTE, networkGroups));
      watch.#add(joinGroups(Protocol.KOBJECT_UEVENT, deviceGroups));
      return watch;
    } catch (error) {
      watch[Symbol.dispose]();
      throw error;
    }
  }

  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    // Closing is deferred: the socket's own receive callback may be running and would use freed memory.
    setImmediate(() => {
      for (const socket of this.#sockets) socket.close();
    });
  }

  #add(socket: RawNetlinkSocket): void {
    const report = () => {
      if (this.#open) this.#onChange();
    };
    // Port 0 is the kernel: messages of other processes are ignored.
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
  try {
    dropSilently(socket.address().port, expected);
    for (const group of groups) socket.addMembership(group);
    return socket;
  } catch (error) {
    socket.close();
    throw error;
  }
}

/** Returns the descriptor that the kernel will give to the next file, unless another thread opens a file first. */
function lowestFreeDescriptor(): number {
  const descriptor = openSync('/proc/self/fd', 'r');
  closeSync(descriptor);
  return descriptor;
}

/**
 * Makes the kernel silently drop messages for which a socket has no room: the messages in the socket already report a change.
 * The package (0.3.0) ends the process on an error while it polls, so a pod that changes its links faster than they are read
 * would end the driver. The package does not expose the descriptor of its socket, which is therefore found by its port;
 * setting the option on the driver's other sockets with that port, in other namespaces, does no harm.
 * @param expected descriptor to check first: a driver has some descriptors for each pod
 * @throws NetlinkError `netlink-lost` if the socket is not found
 */
function dropSilently(port: number, expected: number): void {
  const { getsockname } = loadSystemCalls();
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
  throw new NetlinkError('netlink-lost', `cannot set up a netlink socket: no socket has port ${port}`, {
    operation: 'watch a network namespace',
    retriable: true,
    hint: 'the process needs /proc to find its own sockets',
  });
}
