import { Protocol, RawNetlinkSocket } from 'netlink';
import { type NetnsHandle, openInNetns } from './netns.ts';
import type { DatagramSocket } from './socket.ts';

/** `RTNLGRP_*` of Linux `rtnetlink.h`: links, IPv4 and IPv6 addresses. */
const groups = [1, 5, 9];

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
   * @throws NetlinkError `netns-refused`
   */
  static open(netns: NetnsHandle, onChange: () => void): NetworkWatch {
    const socket = openInNetns(netns, () => {
      const created = new RawNetlinkSocket(Protocol.ROUTE);
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
    // ENOBUFS above all: more changed than the socket could hold.
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
