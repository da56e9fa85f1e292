import { Flags, Protocol, putU32 } from 'netlink';
import { defined } from '../../lib/defined.ts';
import {
  type Address,
  type DuplicateDetection,
  decodeAddress,
  encodeAddress,
  isReachable,
  scopeOf,
} from './address.ts';
import { type Attribute, encodeString } from './attributes.ts';
import { type BondOptions, encodeBond } from './bond.ts';
import { assertIndex, assertInterfaceName } from './checks.ts';
import { addEntry, type EntryTable, readEntries } from './entries.ts';
import {
  altNamesOf,
  decodeLink,
  encodeAltName,
  encodeLink,
  encodeLinkChange,
  encodeNewLink,
  encodeVethPeer,
  type Link,
  LinkAttribute,
  type LinkChange,
} from './link.ts';
import type { LinkFinder, LinkSelector, LinkWriter } from './link-access.ts';
import { createLinkTable, type LinkTable, type LinkTableLimit } from './link-table.ts';
import type { NetlinkMessage } from './messages.ts';
import type { NetnsHandle } from './netns.ts';
import type { VfIdentity } from './network-state.ts';
import { decodeQdisc, encodeQdisc, type QdiscPlace } from './qdisc.ts';
import { readDefaultRoutes, readRoutes } from './read-routes.ts';
import { changeHints, hintsFor, newLinkHints, routeHints } from './request-hints.ts';
import { encodeRoute, formatRoute, type NewRoute, type Route, type RouteId } from './route.ts';
import { decodeAll, MessageType, RtnlRequests } from './rtnl-requests.ts';
import { type NetlinkRequest, RequestSocket } from './socket.ts';
import { decodeLinkTraffic, decodeVfTraffic, type LinkTraffic, type VfTraffic } from './traffic.ts';
import { decodeVfInfos, encodeVfChange, type VfChange, type VfInfo, type VfInfoAccess } from './vf-settings.ts';
import { encodeVrf } from './vrf.ts';

/** `RTEXT_FILTER_VF`. */
const withVfs = 1;
/** `RTEXT_FILTER_SKIP_STATS`: omits counters, which are most of a link's message, unless they are requested. */
const skipStats = 8;

/** Properties that the kernel accepts when it creates a link. It silently ignores an alias: set it afterwards. */
export interface NewLink {
  name: string;
  hardwareAddress?: string;
  mtuBytes?: number;
}

export type NewBond = NewLink & BondOptions;

export interface NewVrf extends NewLink {
  /** Routing table of its members. */
  table: number;
}

export interface NewVeth extends NewLink {
  /** Other end. It cannot start up or as a bridge port (ENOTCONN, or ignored): use {@link RtnlConnection.setLink} later. */
  peer: NewLink;
}

/** Limit for the addresses of one link. */
const maxAddresses = 1_024;

/**
 * A connection to rtnetlink in one network namespace. Requests run one after the other. An open connection keeps its
 * namespace alive, and with it a VF that is in there: close it as soon as the work is done. (Events use a connection of
 * their own, so that an overrun of theirs never loses an answer.)
 */
export class RtnlConnection implements LinkFinder, LinkWriter, VfInfoAccess, Disposable {
  readonly #requests: RtnlRequests;

  constructor(socket: RequestSocket, netnsPath?: string) {
    this.#requests = new RtnlRequests(socket, netnsPath);
  }

  /**
   * @param netns default: the process's own
   * @throws NetlinkError `netns-refused`, `netlink-refused`
   */
  static open(netns?: NetnsHandle): RtnlConnection {
    return new RtnlConnection(RequestSocket.open(Protocol.ROUTE, netns), netns?.path);
  }

  /** Returns all links of the namespace, or only candidates for the given VFs. @param limit as for {@link linkTable} */
  async links(of?: readonly VfIdentity[], limit?: LinkTableLimit): Promise<Link[]> {
    const table = await this.linkTable(limit);
    return of === undefined ? table.all() : table.candidates(of);
  }

  /**
   * Returns all links of the namespace, to look for several VFs with one dump.
   * @param limit how many are listed, and how many of them are decoded; absent: all
   */
  async linkTable(limit?: LinkTableLimit): Promise<LinkTable> {
    const subject = this.#requests.subject('list links');
    const payload = encodeLink(0, [{ type: LinkAttribute.extMask, value: putU32(skipStats) }]);
    const messages = await this.#requests.dump({ type: MessageType.getLink, payload }, subject, limit?.listed);
    const decode = (wanted: NetlinkMessage[]) => decodeAll(wanted, MessageType.newLink, decodeLink, subject);
    return createLinkTable(messages, decode, limit);
  }

  /** Returns a link, also by an alternative name; `undefined` if there is none. */
  async link(by: LinkSelector): Promise<Link | undefined> {
    return (await this.#readLink(by, decodeLink))[0];
  }

  /**
   * Returns a PF's settings for its VFs, in their order. Empty if the link no longer exists or is not a PF. A missing VF is
   * unknown, not absent: drivers leave VFs out. The kernel cannot be asked for one VF, and a list above 64 KiB (some 270
   * VFs) is broken.
   */
  async vfInfos(pfIndex: number): Promise<VfInfo[]> {
    const subject = this.#requests.subject('read the VFs of link', pfIndex);
    const attributes = [{ type: LinkAttribute.extMask, value: putU32(withVfs | skipStats) }];
    const messages = await this.#requests.readLink(encodeLink(assertIndex(pfIndex), attributes), subject, true);
    return decodeAll(messages, MessageType.newLink, (data) => decodeVfInfos(data, { whole: true }), subject).flat();
  }

  /**
   * Returns a PF's counters for its VFs, except VFs that it does not report. The list is a third longer than that of the
   * settings, and ends at 64 KiB, too. Some drivers ask the card's firmware for each VF.
   */
  async vfTraffic(pfIndex: number): Promise<VfTraffic[]> {
    const subject = this.#requests.subject('read the counters of the VFs of link', pfIndex);
    const payload = encodeLink(assertIndex(pfIndex), [{ type: LinkAttribute.extMask, value: putU32(withVfs) }]);
    const messages = await this.#requests.readLink(payload, subject, true);
    return decodeAll(messages, MessageType.newLink, decodeVfTraffic, subject).flat();
  }

  /** Returns a link's own counters; `undefined` if it no longer exists. */
  async linkTraffic(index: number): Promise<LinkTraffic | undefined> {
    const subject = this.#requests.subject('read the counters of link', index);
    const messages = await this.#requests.readLink(encodeLink(assertIndex(index), []), subject);
    return decodeAll(messages, MessageType.newLink, decodeLinkTraffic, subject)[0];
  }

  /**
   * Changes a PF's settings for one of its VFs, property by property.
   * @throws NetlinkError `netlink-refused` with the property in `operation`; `EOPNOTSUPP` if the card cannot do it
   */
  async setVf(pfIndex: number, vfIndex: number, change: VfChange): Promise<void> {
    assertIndex(pfIndex);
    for (const { property, attributes } of encodeVfChange(vfIndex, change)) {
      const subject = this.#requests.subject(`set ${property} of VF ${vfIndex} of link`, pfIndex);
      await this.#requests.change(MessageType.setLink, encodeLink(pfIndex, attributes), subject);
    }
  }

  /** @throws NetlinkError `netlink-refused` with `EEXIST` if any link of the namespace has that name */
  async addAltName(index: number, name: string): Promise<void> {
    const hints = { EEXIST: `the name ${name} is taken` };
    const subject = this.#requests.subject(`add alternative name ${name} to link`, index, hints);
    await this.#requests.create(MessageType.newLinkProperty, encodeAltName(index, Buffer.from(name)), subject);
  }

  /**
   * Removes all alternative names except those to keep, including names that are not UTF-8.
   * @throws NetlinkError the first failure, after all of them were tried
   */
  async removeAltNames(index: number, keep: readonly string[] = []): Promise<void> {
    const kept = keep.map((name) => Buffer.from(name));
    const names = (await this.#readLink({ index }, altNamesOf)).flat();
    const errors: unknown[] = [];
    for (const name of names.filter((each) => !kept.some((other) => other.equals(each)))) {
      const subject = this.#requests.subject(`remove alternative name ${name} of link`, index);
      const removal = this.#requests.change(MessageType.delLinkProperty, encodeAltName(index, name), subject);
      await removal.catch((error: unknown) => errors.push(error));
    }
    if (errors.length > 0) throw errors[0];
  }

  /** Returns the kind of a link's qdisc; `undefined` for the kernel's default, or none. */
  async qdisc(index: number, place: QdiscPlace): Promise<string | undefined> {
    const subject = this.#requests.subject(`read the ${place} qdisc of link`, index);
    // Without the flag the kernel answers only processes that listen for changes. ENOENT: there is none; EINVAL: one that the
    // kernel does not show, such as noqueue.
    const answer = { flags: Flags.ECHO, absent: ['ENOENT', 'EINVAL'] };
    const request = { type: MessageType.getQdisc, payload: encodeQdisc(index, place), ...answer };
    const messages = await this.#requests.send(request, subject);
    return decodeAll(messages, MessageType.newQdisc, decodeQdisc, subject)[0];
  }

  /** Adds a qdisc with the defaults of its kind. */
  async addQdisc(index: number, place: QdiscPlace, kind: string): Promise<void> {
    const subject = this.#requests.subject(`add ${place} qdisc ${kind} to link`, index);
    await this.#requests.create(MessageType.newQdisc, encodeQdisc(index, place, kind), subject);
  }

  /** Restores the kernel's default and removes all filters and classes. */
  async removeQdisc(index: number, place: QdiscPlace): Promise<void> {
    const subject = this.#requests.subject(`remove the ${place} qdisc of link`, index);
    await this.#requests.change(MessageType.delQdisc, encodeQdisc(index, place), subject);
  }

  /** Returns IPv4 and IPv6 addresses, of one link or of all; at most 1024 of one link, since a pod can add any number. */
  async addresses(index?: number): Promise<Address[]> {
    const { messages, subject } = await this.#dumpAddresses(index);
    return decodeAll(messages, MessageType.newAddress, decodeAddress, subject);
  }

  /**
   * Returns the addresses of all links that other hosts can reach. Addresses of link scope, which every link that is up
   * has, are not kept.
   */
  async reachableAddresses(): Promise<Address[]> {
    const { messages, subject } = await this.#dumpAddresses(undefined, (data) => isReachable(scopeOf(data)));
    return decodeAll(messages, MessageType.newAddress, decodeAddress, subject);
  }

  /**
   * Finds for each wanted route of a link, of any table, the one that keeps the kernel from adding it.
   * @returns also whether routes were not read: at most 1024 are, since a pod can add any number
   */
  async findRoutes(
    index: number,
    wanted: readonly RouteId[],
  ): Promise<{ found: (Route | undefined)[]; isCut: boolean }> {
    return await readRoutes(this.#requests, index, wanted);
  }

  /** Returns the default routes of all tables. Other routes, of which a node can have any number, are not kept. */
  async defaultRoutes(): Promise<Route[]> {
    return await readDefaultRoutes(this.#requests);
  }

  /** @throws NetlinkError `netlink-refused` with `EEXIST` for a name that is taken, `ENODEV` if the link is gone */
  async setLink(index: number, change: LinkChange): Promise<void> {
    if (change.netns === undefined) return await this.#setLink(index, change);
    await this.#requests.changeInto(change.netns, (netns) => this.#setLink(index, { ...change, netns }));
  }

  async #setLink(index: number, change: LinkChange): Promise<void> {
    const payload = encodeLinkChange(index, change);
    const verb = change.netns === undefined ? 'change' : `move to ${change.netns.path}`;
    const what = `${verb} (${Object.keys(change).join(', ')}) link`;
    const subject = this.#requests.subject(what, index, changeHints(change));
    // The kernel ignores settings of a bond in RTM_SETLINK.
    const type = change.primaryMember === undefined ? MessageType.setLink : MessageType.newLink;
    await this.#requests.change(type, payload, subject);
  }

  /**
   * @param cidr `192.0.2.7/24`
   * @param detection of duplicates, for IPv6
   * @throws NetlinkError `netlink-refused` with `EEXIST` if the link has it already
   */
  async addAddress(index: number, cidr: string, detection?: DuplicateDetection): Promise<void> {
    const payload = encodeAddress(index, cidr, detection);
    await this.#requests.create(
      MessageType.newAddress,
      payload,
      this.#requests.subject(`add address ${cidr} to link`, index, hintsFor(cidr)),
    );
  }

  /** @throws NetlinkError `netlink-refused` with `EADDRNOTAVAIL` if the link does not have it */
  async removeAddress(index: number, cidr: string): Promise<void> {
    const subject = this.#requests.subject(`remove address ${cidr} from link`, index);
    await this.#requests.change(MessageType.delAddress, encodeAddress(index, cidr), subject);
  }

  /** @throws NetlinkError `netlink-refused` with `EEXIST`, or `ENETUNREACH` if the gateway is in no network of the link */
  async addRoute(route: NewRoute): Promise<void> {
    const subject = this.#requests.subject(`add route to ${formatRoute(route)} by link`, route.index, routeHints);
    await this.#requests.create(MessageType.newRoute, encodeRoute(route), subject);
  }

  /**
   * Returns rules, or permanent neighbors of a link.
   * @param most limit for the number of messages read
   * @returns `undefined` if there are as many or more
   */
  async entries<Entry>(table: EntryTable<Entry>, index: number, most: number): Promise<Entry[] | undefined> {
    return await readEntries(this.#requests, table, index, most);
  }

  /** @throws NetlinkError `netlink-refused` with `EEXIST` for a rule that is there */
  async addEntry<Entry>(table: EntryTable<Entry>, index: number, entry: Entry): Promise<void> {
    await addEntry(this.#requests, table, index, entry);
  }

  /** Creates both ends in this namespace. */
  async createVeth({ peer, ...end }: NewVeth): Promise<void> {
    await this.#createLink(end, 'veth', encodeVethPeer(peer), `create veth pair with ${peer.name}`);
  }

  async createBridge(bridge: NewLink): Promise<void> {
    await this.#createLink(bridge, 'bridge');
  }

  /** @throws NetlinkError `netlink-refused` with `ENOTSUP` if the kernel has no bonding */
  async createBond(bond: NewBond): Promise<void> {
    await this.#createLink(bond, 'bond', encodeBond(bond));
  }

  /** @throws NetlinkError `netlink-refused` with `ENOTSUP` if the kernel has no VRFs */
  async createVrf(vrf: NewVrf): Promise<void> {
    await this.#createLink(vrf, 'vrf', encodeVrf(vrf.table));
  }

  /** Deleting a veth end also deletes its other end; deleting a bond frees its members. */
  async deleteLink(index: number): Promise<void> {
    const payload = encodeLink(assertIndex(index), []);
    await this.#requests.change(MessageType.delLink, payload, this.#requests.subject('delete link', index));
  }

  [Symbol.dispose](): void {
    this.#requests[Symbol.dispose]();
  }

  async #readLink<T>(by: LinkSelector, decode: (message: Buffer) => T): Promise<T[]> {
    const subject = this.#requests.subject('read link', 'index' in by ? by.index : by.name);
    const extMask = { type: LinkAttribute.extMask, value: putU32(skipStats) };
    const name = 'name' in by ? [{ type: LinkAttribute.name, value: encodeString(assertInterfaceName(by.name)) }] : [];
    const payload = encodeLink('index' in by ? assertIndex(by.index) : 0, [extMask, ...name]);
    return decodeAll(await this.#requests.readLink(payload, subject), MessageType.newLink, decode, subject);
  }

  async #dumpAddresses(index?: number, keeps?: NetlinkRequest['keeps']) {
    const subject = this.#requests.subject('list addresses');
    // Source: Linux if_addr.h `struct ifaddrmsg`, in which the kernel filters by `ifa_index` for sockets with strict checks.
    const header = Buffer.alloc(8);
    header.writeUInt32LE(index ?? 0, 4);
    const request = { type: MessageType.getAddress, payload: [header], ...defined({ keeps }) };
    const limit = index === undefined ? Infinity : maxAddresses;
    const { messages } = await this.#requests.dumpOf(index, request, subject, limit);
    if (index === undefined) return { messages, subject };
    // Filtered again, for kernels before 4.20, which return the addresses of all links.
    const own = messages.filter(({ data }) => data.length >= 8 && data.readUInt32LE(4) === index);
    return { messages: own, subject };
  }

  async #createLink(link: NewLink, kind: string, data?: Attribute[], operation = `create ${kind}`): Promise<void> {
    const subject = this.#requests.subject(operation, link.name, newLinkHints);
    await this.#requests.create(MessageType.newLink, encodeNewLink(link, kind, data), subject);
  }
}
