import { FlagsNew } from 'netlink';
import { decodeAnswer, NetlinkError, NotSentError, type RequestSubject } from './errors.ts';
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

/**
 * Average number of bytes for an entry, from which limits follow. Entries that the driver sets have a third of it, but a
 * route can have 64 KiB.
 */
const entryBytes = 256;

/** Common part of all requests of a connection to rtnetlink. */
export class RtnlRequests implements Disposable {
  readonly #socket: RequestSocket;
  readonly #netnsPath: string | undefined;

  /** @param netnsPath path of the network namespace, for errors */
  constructor(socket: RequestSocket, netnsPath?: string) {
    this.#socket = socket;
    this.#netnsPath = netnsPath;
  }

  /** Returns the subject of a request, for errors. @param link index or name of the request's link, if it has one */
  subject(operation: string, link?: number | string, hints: Record<string, string> = {}): RequestSubject {
    const interfaceName = typeof link === 'number' ? `#${link}` : link;
    return { operation, interfaceName, netns: this.#netnsPath, hints };
  }

  /** Sends a request: see {@link RequestSocket.request}. */
  async send(request: NetlinkRequest, subject: RequestSubject): Promise<NetlinkMessage[]> {
    return await this.#socket.request(request, subject);
  }

  /** Reads one link. Returns no message if the link does not exist. */
  async readLink(payload: Uint8Array[], subject: RequestSubject, isLarge = false): Promise<NetlinkMessage[]> {
    return await this.#socket.request({ type: MessageType.getLink, payload, isLarge, absent: ['ENODEV'] }, subject);
  }

  /** Lists entries: see {@link RequestSocket.dump}. */
  async dump(request: NetlinkRequest, subject: RequestSubject, limit?: DumpLimit): Promise<NetlinkMessage[]> {
    return await this.#socket.dump(request, subject, limit);
  }

  /**
   * Lists the entries of a link. Returns no message if the link does not exist.
   * @param index index of the link; absent: entries of all links
   * @param most maximum number of entries, from which a limit for their bytes follows
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

  /** Creates an object. @throws NetlinkError `netlink-refused` with `EEXIST` if it exists */
  async create(type: number, payload: Uint8Array[], subject: RequestSubject): Promise<void> {
    await this.#socket.request({ type, flags: FlagsNew.CREATE | FlagsNew.EXCL, payload }, subject);
  }

  async change(type: number, payload: Uint8Array[], subject: RequestSubject): Promise<void> {
    await this.#socket.request({ type, payload }, subject);
  }

  /**
   * Makes a change that names a network namespace. The kernel looks up the descriptor when it executes the request. By then
   * the request may have failed in the driver, and the caller may have closed its descriptor. So the request gets a
   * descriptor of its own, which stays open until then, and no longer: it keeps the namespace of a pod that is gone.
   */
  async changeInto(netns: NetnsReference, change: (netns: NetnsReference) => Promise<void>): Promise<void> {
    const own = NetnsHandle.open(netns.path, `/proc/self/fd/${netns.fd}`);
    try {
      await change({ path: netns.path, fd: own.fd });
    } catch (error) {
      if (error instanceof NetlinkError && error.cause instanceof NotSentError) own[Symbol.dispose]();
      throw error;
    } finally {
      void this.#socket.ended().finally(() => own[Symbol.dispose]());
    }
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}

/** Decodes messages of one type. Skips messages for which `decode` returns `undefined`. */
export function decodeAll<T>(
  messages: { type: number; data: Buffer }[],
  type: number,
  decode: (message: Buffer) => T | undefined,
  subject: RequestSubject,
): T[] {
  const wanted = messages.filter((message) => message.type === type);
  return decodeAnswer(() => wanted.map(({ data }) => decode(data)).filter((each) => each !== undefined), subject);
}
