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
/** `RTEXT_FILTER_SKIP_STATS`: omits counters, which otherwise make up most of a link message. */
const skipStats = 8;

/** Properties that the kernel accepts when it creates a link. It silently ignores an alias, which must be set afterwards. */
export interface NewLink {
  name: string;
  hardwareAddress?: string;
  mtuBytes?: number;
}

export type NewBond = NewLink & BondOptions;

export interface NewVrf extends NewLink {
  /** Routing table of the VRF's members. */
  table: number;
}

export interface NewVeth extends NewLink {
  /**
   * Other end of the pair. It cannot be created up (ENOTCONN) or as a bridge port (ignored): use {@link
   * RtnlConnection.setLink} later.
   */
  peer: NewLink;
}

/** Maximum number of addresses of one link that are read. */
const maxAddresses = 1_024;

/**
 * A connection to rtnetlink in one network namespace. Requests run one after the other. An open connection keeps its
 * namespace alive, and with it a VF in the namespace: close it as soon as the work is done. Events use connections of their
 * own, so that an overflow of events never loses an answer.
 */
export class RtnlConnection implements LinkFinder, LinkWriter, VfInfoAccess, Disposable {
  readonly #requests: RtnlRequests;

  constructor(socket: RequestSocket, netnsPath?: string) {
    this.#requests = new RtnlRequests(socket, netnsPath);
  }

  /**
   * Opens a connection. @param netns default: the process's own namespace
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
   * Lists all links of the namespace, so that several VFs can be found with one list.
   * @param limit maximum numbers of links to list and to decode; absent: all
   */
  async linkTable(limit?: LinkTableLimit): Promise<LinkTable> {
    const subject = this.#requests.subject('list links');
    const payload = encodeLink(0, [{ type: LinkAttribute.extMask, value: putU32(skipStats) }]);
    const messages = await this.#requests.dump({ type: MessageType.getLink, payload }, subject, limit?.listed);
    const decode = (wanted: NetlinkMessage[]) => decodeAll(wanted, MessageType.newLink, decodeLink, subject);
    return createLinkTable(messages, decode, limit);
  }

  /** Returns a link by its index, name or alternative name; `undefined` if there is none. */
  async link(by: LinkSelector): Promise<Link | undefined> {
    return (await this.#readLink(by, decodeLink))[0];
  }

  /**
   * Returns a PF's settings for its VFs, in order; an empty list if the link no longer exists or is not a PF. A missing VF is
   * unknown, not absent: drivers leave VFs out. The kernel cannot be asked for a single VF, and truncates a list of more than
   * 64 KiB (some 270 VFs).
   */
  async vfInfos(pfIndex: number): Promise<VfInfo[]> {
    const subject = this.#requests.subject('read the VFs of link', pfIndex);
    const attributes = [{ type: LinkAttribute.extMask, value: putU32(withVfs | skipStats) }];
    const messages = await this.#requests.readLink(encodeLink(assertIndex(pfIndex), attributes), subject, true);
    return decodeAll(messages, MessageType.newLink, (data) => decodeVfInfos(data, { whole: true }), subject).flat();
  }

  /**
   * Returns a PF's counters for the VFs that it reports. The list is a third longer than the list of settings, and also ends
   * at 64 KiB. Some drivers ask the card's firmware for each VF.
   */
  async vfTraffic(pfIndex: number): Promise<VfTraffic[]> {
    const subject = this.#requests.subject('read the counters of the VFs of link', pfIndex);
    const payload = encodeLink(assertIndex(pfIndex), [{ type: LinkAttribute.extMask, value: putU32(withVfs) }]);
    const messages = await this.#requests.readLink(payload, subject, true);
    return decodeAll(messages, MessageType.newLink, decodeVfTraffic, subject).flat();
  }

  /** Returns the counters of a link itself; `undefined` if the link no longer exists. */
  async linkTraffic(index: number): Promise<LinkTraffic | undefined> {
    const subject = this.#requests.subject('read the counters of link', index);
    const messages = await this.#requests.readLink(encodeLink(assertIndex(index), []), subject);
    return decodeAll(messages, MessageType.newLink, decodeLinkTraffic, subject)[0];
  }

  /**
   * Changes a PF's settings for one of its VFs, one property after the other.
   * @throws NetlinkError `netlink-refused` with the property in `operation`; `EOPNOTSUPP` if the card does not support it
   */
  async setVf(pfIndex: number, vfIndex: number, change: VfChange): Promise<void> {
    assertIndex(pfIndex);
    for (const { property, attributes } of encodeVfChange(vfIndex, change)) {
      const subject = this.#requests.subject(`set ${property} of VF ${vfIndex} of link`, pfIndex);
      await this.#requests.change(MessageType.setLink, encodeLink(pfIndex, attributes), subject);
    }
  }

  /**
   * Adds an alternative name. @throws NetlinkError `netlink-refused` with `EEXIST` if any link of the namespace has the name
   */
  async addAltName(index: number, name: string): Promise<void> {
    const hints = { EEXIST: `the name ${name} is taken` };
    const subject = this.#requests.subject(`add alternative name ${name} to link`, index, hints);
    await this.#requests.create(MessageType.newLinkProperty, encodeAltName(index, Buffer.from(name)), subject);
  }

  /**
   * Removes all alternative names except those in `keep`, including names that are not UTF-8.
   * @throws NetlinkError the first failure, after all names were tried
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

  /** Returns the kind of a link's qdisc; `undefined` for the kernel's default, or if there is none. */
  async qdisc(index: number, place: QdiscPlace): Promise<string | undefined> {
    const subject = this.#requests.subject(`read the ${place} qdisc of link`, index);
    // Without the flag, the kernel answers only processes that listen for changes. ENOENT: there is no qdisc; EINVAL: the
    // kernel does not show it, such as noqueue.
    const answer = { flags: Flags.ECHO, absent: ['ENOENT', 'EINVAL'] };
    const request = { type: MessageType.getQdisc, payload: encodeQdisc(index, place), ...answer };
    const messages = await this.#requests.send(request, subject);
    return decodeAll(messages, MessageType.newQdisc, decodeQdisc, subject)[0];
  }

  /** Adds a qdisc with the default settings of its kind. */
  async addQdisc(index: number, place: QdiscPlace, kind: string): Promise<void> {
    const subject = this.#requests.subject(`add ${place} qdisc ${kind} to link`, index);
    await this.#requests.create(MessageType.newQdisc, encodeQdisc(index, place, kind), subject);
  }

  /** Removes a qdisc with all filters and classes, so that the kernel's default applies. */
  async removeQdisc(index: number, place: QdiscPlace): Promise<void> {
    const subject = this.#requests.subject(`remove the ${place} qdisc of link`, index);
    await this.#requests.change(MessageType.delQdisc, encodeQdisc(index, place), subject);
  }

  /** Returns the IPv4 and IPv6 addresses of one link or of all links. Of one link, at most 1024: a pod can add any number. */
  async addresses(index?: number): Promise<Address[]> {
    const { messages, subject } = await this.#dumpAddresses(index);
    return decodeAll(messages, MessageType.newAddress, decodeAddress, subject);
  }

  /**
   * Returns the addresses of all links that other hosts can reach. Addresses of link scope are dropped as they arrive: every
   * link that is up has some.
   */
  async reachableAddresses(): Promise<Address[]> {
    const { messages, subject } = await this.#dumpAddresses(undefined, (data) => isReachable(scopeOf(data)));
    return decodeAll(messages, MessageType.newAddress, decodeAddress, subject);
  }

  /**
   * Returns, for each wanted route of a link in any table, the route that keeps the kernel from adding it. `isCut` is set if
   * some routes were not read: at most 1024 are read, since a pod can add any number.
   */
  async findRoutes(
    index: number,
    wanted: readonly RouteId[],
  ): Promise<{ found: (Route | undefined)[]; isCut: boolean }> {
    return await readRoutes(this.#requests, index, wanted);
  }

  /** Returns the default routes of all tables. Other routes are dropped as they arrive: a node can have any number. */
  async defaultRoutes(): Promise<Route[]> {
    return await readDefaultRoutes(this.#requests);
  }

  /** Changes a link. @throws NetlinkError `netlink-refused` with `EEXIST` for a taken name, `ENODEV` if the link is gone */
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
   * Adds an address. @param cidr address such as `192.0.2.7/24`
   * @param detection duplicate address detection, for IPv6
   * @throws NetlinkError `netlink-refused` with `EEXIST` if the link has the address already
   */
  async addAddress(index: number, cidr: string, detection?: DuplicateDetection): Promise<void> {
    const payload = encodeAddress(index, cidr, detection);
    await this.#requests.create(
      MessageType.newAddress,
      payload,
      this.#requests.subject(`add address ${cidr} to link`, index, hintsFor(cidr)),
    );
  }

  /** Removes an address. @throws NetlinkError `netlink-refused` with `EADDRNOTAVAIL` if the link does not have it */
  async removeAddress(index: number, cidr: string): Promise<void> {
    const subject = this.#requests.subject(`remove address ${cidr} from link`, index);
    await this.#requests.change(MessageType.delAddress, encodeAddress(index, cidr), subject);
  }

  /**
   * Adds a route. @throws NetlinkError `netlink-refused` with `EEXIST`; `ENETUNREACH` if no network of the link has the
   * gateway
   */
  async addRoute(route: NewRoute): Promise<void> {
    const subject = this.#requests.subject(`add route to ${formatRoute(route)} by link`, route.index, routeHints);
    await this.#requests.create(MessageType.newRoute, encodeRoute(route), subject);
  }

  /**
   * Returns the entries of a table, of a link if they belong to links.
   * @param most maximum number of messages to read
   * @returns `undefined` if there are as many or more
   */
  async entries<Entry>(table: EntryTable<Entry>, index: number, most: number): Promise<Entry[] | undefined> {
    return await readEntries(this.#requests, table, index, most);
  }

  /** Adds an entry. @throws NetlinkError `netlink-refused` with `EEXIST` for a rule, address or route that exists */
  async addEntry<Entry>(table: EntryTable<Entry>, index: number, entry: Entry): Promise<void> {
    await addEntry(this.#requests, table, index, entry);
  }

  /** Creates a veth pair with both ends in this namespace. */
  async createVeth({ peer, ...end }: NewVeth): Promise<void> {
    await this.#createLink(end, 'veth', encodeVethPeer(peer), `create veth pair with ${peer.name}`);
  }

  async createBridge(bridge: NewLink): Promise<void> {
    await this.#createLink(bridge, 'bridge');
  }

  /** Creates a bond. @throws NetlinkError `netlink-refused` with `ENOTSUP` if the kernel has no bonding */
  async createBond(bond: NewBond): Promise<void> {
    await this.#createLink(bond, 'bond', encodeBond(bond));
  }

  /** Creates a VRF. @throws NetlinkError `netlink-refused` with `ENOTSUP` if the kernel has no VRFs */
  async createVrf(vrf: NewVrf): Promise<void> {
    await this.#createLink(vrf, 'vrf', encodeVrf(vrf.table));
  }

  /** Deletes a link. Deleting one end of a veth pair also deletes the other end; deleting a bond frees its members. */
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
    // `struct ifaddrmsg` of Linux if_addr.h. For sockets with strict checks, the kernel filters by its `ifa_index`.
    const header = Buffer.alloc(8);
    header.writeUInt32LE(index ?? 0, 4);
    const request = { type: MessageType.getAddress, payload: [header], ...defined({ keeps }) };
    const limit = index === undefined ? Infinity : maxAddresses;
    const { messages } = await this.#requests.dumpOf(index, request, subject, limit);
    if (index === undefined) return { messages, subject };
    // Kernels before 4.20 return the addresses of all links, so they are filtered here, too.
    const own = messages.filter(({ data }) => data.length >= 8 && data.readUInt32LE(4) === index);
    return { messages: own, subject };
  }

  async #createLink(link: NewLink, kind: string, data?: Attribute[], operation = `create ${kind}`): Promise<void> {
    const subject = this.#requests.subject(operation, link.name, newLinkHints);
    await this.#requests.create(MessageType.newLink, encodeNewLink(link, kind, data), subject);
  }
}
