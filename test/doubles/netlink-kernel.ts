import { setImmediate } from 'node:timers/promises';
import { formatMessage, parseMessage } from 'netlink';
import { EthtoolConnection, RtnlConnection } from '../../src/node/netlink/index.ts';
import { RequestSocket } from '../../src/node/netlink/socket.ts';

/** Returns the datagram, or the datagrams, for the request with this number. */
type Answer = (seq: number) => Uint8Array | Iterable<Uint8Array>;

/** The kernel's end of a netlink socket. Gives each datagram in a turn of its own. */
function kernelEnd(answer: Answer) {
  return {
    exchange: async (request: Buffer, onDatagram: (datagram: Buffer) => void) => {
      const given = answer(parseMessage(request).x.seq);
      if (given instanceof Uint8Array) return onDatagram(Buffer.from(given));
      for (const datagram of given) {
        onDatagram(Buffer.from(datagram));
        await setImmediate();
      }
    },
    ended: async () => undefined,
    close: () => undefined,
  };
}

/** A connection to a kernel with given answers. */
export function connectKernel(answer: Answer): RtnlConnection {
  return new RtnlConnection(new RequestSocket(kernelEnd(answer)));
}

/** The same for generic netlink. */
export function connectEthtool(answer: Answer): EthtoolConnection {
  return new EthtoolConnection(new RequestSocket(kernelEnd(answer)));
}

/** The complete answer to a request for a table, of messages of one type. */
export function completeTable(seq: number, type: number, payloads: Iterable<Uint8Array>): Buffer {
  return Buffer.concat([...tableDatagrams(seq, type, payloads)]);
}

/** The same with a datagram for each message. */
export function* tableDatagrams(seq: number, type: number, payloads: Iterable<Uint8Array>): Iterable<Buffer> {
  const datagram = (of: number, payload: Uint8Array) =>
    Buffer.concat(formatMessage({ type: of, flags: 2, seq, port: 0, data: [payload] }));
  for (const payload of payloads) yield datagram(type, payload);
  yield datagram(3, Buffer.alloc(4));
}

/** A complete answer of one message: acknowledged like that to a single request, and ended like a dump. */
export function completeAnswer(seq: number, type: number, payload: Uint8Array): Buffer {
  const acknowledgement = { type: 2, flags: 0, seq, port: 0, data: [Buffer.alloc(20)] };
  return Buffer.concat([completeTable(seq, type, [payload]), ...formatMessage(acknowledgement)]);
}
