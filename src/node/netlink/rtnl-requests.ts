import { FlagsNew } from 'netlink';
import { decodeAnswer, type RequestSubject } from './errors.ts';
import type { NetnsReference } from './link.ts';
import type { NetlinkMessage } from './messages.ts';
import { NetnsHandle } from './netns.ts';
import { type DumpLimit, isCutOff, type NetlinkRequest, type RequestSocket } from './socket.ts';

/** `RTM_*` of Linux `rtnetlink.h`. */
export const MessageType = {
  newLink: 16,
  delLink: 17,
  getLink: 18,
  setLink: 19,
  newAddress: 20,
  delAddress: 21,
  getAddress: 22,
  newRoute: 24,
  getRoute: 26,
  newQdisc: 36,
  delQdisc: 37,
  getQdisc: 38,
  newNextHop: 104,
  getNextHop: 106,
  newLinkProperty: 108,
  delLinkProperty: 109,
} as const;

/** Limit for the bytes of an entry, on average: those that the driver sets have a third of it, but a route can have 64 KiB. */
const entryBytes = 256;

/** What all requests of a connection to rtnetlink share. */
export class RtnlRequests implements Disposable {
  readonly #socket: RequestSocket;
  readonly #netnsPath: string | undefined;

  /** @param netnsPath of the network namespace, for errors */
  constructor(socket: RequestSocket, netnsPath?: string) {
    this.#socket = socket;
    this.#netnsPath = netnsPath;
  }

  /** Returns the subject of a request, for errors. @param link index or name of its link, if it has one */
  subject(operation: string, link?: number | string, hints: Record<string, string> = {}): RequestSubject {
    const interfaceName = typeof link === 'number' ? `#${link}` : link;
    return { operation, interfaceName, netns: this.#netnsPath, hints };
  }

  /** See {@link RequestSocket.request}. */
  async send(request: NetlinkRequest, subject: RequestSubject): Promise<NetlinkMessage[]> {
    return await this.#socket.request(request, subject);
  }

  /** Reads one link; no message if it does not exist. */
  async readLink(payload: Uint8Array[], subject: RequestSubject, isLarge = false): Promise<NetlinkMessage[]> {
    return await this.#socket.request({ type: MessageType.getLink, payload, isLarge, absent: ['ENODEV'] }, subject);
  }

  /** See {@link RequestSocket.dump}. */
  async dump(request: NetlinkRequest, subject: RequestSubject, limit?: DumpLimit): Promise<NetlinkMessage[]> {
    return await this.#socket.dump(request, subject, limit);
  }

  /**
   * Reads the entries of a link; no message if it does not exist.
   * @param index absent: those of all links
   * @param most limit for their number, and with it for their bytes
   */
  async dumpOf(
    index: number | undefined,
    request: NetlinkRequest,
    subject: RequestSubject,
    most = Infinity,
  ): Promise<{ messages: NetlinkMessage[]; isCut: boolean }> {
    const limit = { messages: most, bytes: most * entryBytes };
    const absent = index === undefined ? [] : ['ENODEV'];
    const messages = await this.#socket.dump({ ...request, absent }, subject, limit);
    return { messages, isCut: isCutOff(messages, limit) };
  }

  /** @throws NetlinkError `netlink-refused` with `EEXIST` if it exists */
  async create(type: number, payload: Uint8Array[], subject: RequestSubject): Promise<void> {
    await this.#socket.request({ type, flags: FlagsNew.CREATE | FlagsNew.EXCL, payload }, subject);
  }

  async change(type: number, payload: Uint8Array[], subject: RequestSubject): Promise<void> {
    await this.#socket.request({ type, payload }, subject);
  }

  /**
   * Makes a change that names a network namespace. The kernel looks up the descriptor when it gets to the request, which
   * may be after the request has failed here and the caller has closed its own: it gets one that is open until then.
   */
  async changeInto(netns: NetnsReference, change: (netns: NetnsReference) => Promise<void>): Promise<void> {
    const own = NetnsHandle.open(`/proc/self/fd/${netns.fd}`);
    try {
      await change({ path: netns.path, fd: own.fd });
    } finally {
      void this.#socket.ended().finally(() => own[Symbol.dispose]());
    }
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}

/** Decodes messages of one type, except those for which `decode` returns `undefined`. */
export function decodeAll<T>(
  messages: { type: number; data: Buffer }[],
  type: number,
  decode: (message: Buffer) => T | undefined,
  subject: RequestSubject,
): T[] {
  const wanted = messages.filter((message) => message.type === type);
  return decodeAnswer(() => wanted.map(({ data }) => decode(data)).filter((each) => each !== undefined), subject);
}
