import {
  Flags,
  FlagsGet,
  formatMessage,
  MessageType,
  Protocol,
  parseMessages,
  putU32,
  RawNetlinkSocket,
} from 'netlink';
import { type Link, type NetnsHandle, openInNetns } from '../../../src/node/netlink/index.ts';
import { encodeLinkChange } from '../../../src/node/netlink/link.ts';

/** `RTM_*` of Linux `rtnetlink.h`. */
export const RtnlType = { setLink: 19, getLink: 18, newAddress: 20, getAddress: 22 } as const;
/** `NLM_F_ACK`. */
const acknowledged = 4;
/** `IFLA_EXT_MASK` with `RTEXT_FILTER_SKIP_STATS`: for readers that do not need the counters. */
const skipStats = [putU32(8 | (29 << 16)), putU32(8)];

/**
 * Minimal rtnetlink: sends a request and reads answers until the last one, without decoding them. Only
 * errors are checked.
 */
export class BareNetlink implements Disposable {
  readonly #socket: RawNetlinkSocket;
  #seq = 0;
  #pending: { resolve(): void; reject(error: Error): void } | undefined;

  constructor(netns?: NetnsHandle) {
    const create = () => new RawNetlinkSocket(Protocol.ROUTE);
    this.#socket = netns === undefined ? create() : openInNetns(netns, create);
    this.#socket.on('message', (message: Buffer) => this.#receive(message));
  }

  /** All links, and all addresses: the data needed to describe a VF. */
  async dumps(): Promise<void> {
    await this.request(RtnlType.getLink, FlagsGet.DUMP, [Buffer.alloc(16), ...skipStats]);
    await this.request(RtnlType.getAddress, FlagsGet.DUMP, [Buffer.alloc(8)]);
  }

  /** Moves a link of this namespace into another one, under its name, and sets it up there. */
  async moveTo(pod: BareNetlink, netns: NetnsHandle, { index, name }: Pick<Link, 'index' | 'name'>): Promise<void> {
    await this.request(RtnlType.setLink, acknowledged, encodeLinkChange(index, { name, netns }));
    await pod.request(RtnlType.setLink, acknowledged, encodeLinkChange(index, { up: true }));
  }

  request(type: number, flags: number, data: Uint8Array[]): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#pending = { resolve, reject };
    const message = formatMessage({ type, flags: flags | Flags.REQUEST, seq: ++this.#seq, port: 0, data });
    this.#socket.send(Buffer.concat(message), {}, (error) => error && reject(error));
    return promise;
  }

  [Symbol.dispose](): void {
    setImmediate(() => this.#socket.close());
  }

  #receive(datagram: Buffer): void {
    for (const { type, data } of parseMessages(datagram)) {
      if (type === MessageType.DONE) this.#pending?.resolve();
      if (type !== MessageType.ERROR) continue;
      const errno = data.readInt32LE(0);
      if (errno === 0) this.#pending?.resolve();
      else this.#pending?.reject(new Error(`rtnetlink refused with errno ${-errno}`));
    }
  }
}
