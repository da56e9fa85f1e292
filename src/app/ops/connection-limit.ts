import { BlockList, isIPv6, type Socket } from 'node:net';

/** Number of newest connections that stay open, whatever their age. */
const mostKept = 32;
/** Minimum lifetime of a connection, ms: time for one request, since the oldest connection may be a probe of the kubelet. */
const graceMs = 1_000;
/**
 * Number of connections above which even younger ones are closed: more than the kernel queues for one turn of the event loop
 * (511).
 */
const mostOpen = 1_024;

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/**
 * Closes the oldest connections when there are too many. Connections from the node itself, such as the kubelet's, are counted
 * separately: any pod can reach the port, and its connections must not make probes fail.
 */
export class ConnectionLimit implements Disposable {
  readonly #own = new ConnectionPool();
  readonly #others = new ConnectionPool();

  add(socket: Socket): void {
    (isOfThisNode(socket) ? this.#own : this.#others).add(socket);
  }

  /** Closes all connections. */
  [Symbol.dispose](): void {
    this.#own[Symbol.dispose]();
    this.#others[Symbol.dispose]();
  }
}

class ConnectionPool implements Disposable {
  /** Open connections with their start times in ms, the oldest first. */
  readonly #sockets = new Map<Socket, number>();
  #timer: NodeJS.Timeout | undefined;

  add(socket: Socket): void {
    this.#sockets.set(socket, performance.now());
    socket.once('close', () => this.#sockets.delete(socket));
    this.#shrink();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    for (const socket of this.#sockets.keys()) socket.destroy();
  }

  #shrink(): void {
    for (const [socket, sinceMs] of this.#sockets) {
      if (this.#sockets.size <= mostKept) return;
      const leftMs = sinceMs + graceMs - performance.now();
      if (leftMs > 0 && this.#sockets.size <= mostOpen) {
        this.#shrinkIn(leftMs);
        return;
      }
      this.#sockets.delete(socket);
      socket.destroy();
    }
  }

  #shrinkIn(ms: number): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#shrink();
    }, ms);
    this.#timer.unref();
  }
}

/**
 * Returns whether a connection comes from this machine: both ends have the same address, or the other end is a loopback
 * address.
 */
function isOfThisNode({ localAddress, remoteAddress }: Socket): boolean {
  if (remoteAddress === undefined) return false;
  return remoteAddress === localAddress || loopback.check(remoteAddress, isIPv6(remoteAddress) ? 'ipv6' : 'ipv4');
}
