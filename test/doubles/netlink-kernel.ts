import { formatMessage, parseMessage } from 'netlink';
import { EthtoolConnection, RtnlConnection } from '../../src/node/netlink/index.ts';
import { RequestSocket } from '../../src/node/netlink/socket.ts';

/** The kernel's end of a netlink socket, which answers each request with the given bytes. */
function kernelEnd(answer: (seq: number) => Uint8Array) {
  return {
    exchange: async (request: Buffer, onDatagram: (datagram: Buffer) => void) => {
      onDatagram(Buffer.from(answer(parseMessage(request).x.seq)));
    },
    close: () => undefined,
  };
}

/**
 * A connection to a kernel with given answers.
 * @param answer the datagram for the request with this number
 */
export function connectKernel(answer: (seq: number) => Uint8Array): RtnlConnection {
  return new RtnlConnection(new RequestSocket(kernelEnd(answer)));
}

/** The same for generic netlink. */
export function connectEthtool(answer: (seq: number) => Uint8Array): EthtoolConnection {
  return new EthtoolConnection(new RequestSocket(kernelEnd(answer)));
}

/** The complete answer to a request for a table, of messages of one type. */
export function completeTable(seq: number, type: number, payloads: readonly Uint8Array[]): Buffer {
  return Buffer.concat([
    ...payloads.flatMap((payload) => formatMessage({ type, flags: 2, seq, port: 0, data: [payload] })),
    ...formatMessage({ type: 3, flags: 2, seq, port: 0, data: [Buffer.alloc(4)] }),
  ]);
}

/** A complete answer of one message: acknowledged like that to a single request, and ended like a dump. */
export function completeAnswer(seq: number, type: number, payload: Uint8Array): Buffer {
  const acknowledgement = { type: 2, flags: 0, seq, port: 0, data: [Buffer.alloc(20)] };
  return Buffer.concat([completeTable(seq, type, [payload]), ...formatMessage(acknowledgement)]);
}
