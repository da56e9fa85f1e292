import { refused } from '../../src/node/netlink/errors.ts';
import type {
  EntryTable,
  LinkChange,
  NewRoute,
  QdiscPlace,
  Route,
  RouteId,
  RouteSpec,
} from '../../src/node/netlink/index.ts';
import type { LinkFlag } from '../../src/node/netlink/link.ts';
import { encodeRoute, findRoutes, routeKey } from '../../src/node/netlink/route.ts';
import { type LinkSpec, Namespace, type Reference, SimLink } from './links.ts';
import type { Simulator } from './simulator.ts';

const errno = {
  enoent: 2,
  ebadf: 9,
  eexist: 17,
  ebusy: 16,
  enodev: 19,
  einval: 22,
  eaddrnotavail: 99,
  enetunreach: 101,
};
const eperm = 1;

/** Notified of the moves of links, for checks. */
export interface KernelObserver {
  /** @param by the requester; absent: the kernel itself */
  moved(link: SimLink, from: Namespace, to: Namespace, by: string | undefined): void;
  removed(link: SimLink, by: string | undefined): void;
  /** Duplicate address detection of one of its addresses has ended. */
  addressReady(link: SimLink): void;
}

export interface KernelOptions {
  simulator: Simulator;
  /** Linux before 6.2 does not rename a link that is up. */
  renamesLinksThatAreUp: boolean;
  /** Whether udev adds a link's own name as an alternative name when it comes back under another name. */
  udevAddsAltNames: boolean;
  /** The name by which udev knows a link. */
  udevNameOf: (link: SimLink) => string | undefined;
  /** Whether interfaces of pods get an IPv6 address when they are set up, which another one may have for the first second or two. */
  hasIpv6: boolean;
}

/** Network namespaces and links, with the behaviour of Linux. */
export class Kernel {
  readonly host: Namespace;
  readonly observers: KernelObserver[] = [];
  /** Namespaces and their left-overs, by the paths to which runtimes bind them. */
  readonly mounts = new Map<string, Namespace | 'plain file'>();
  readonly #options: KernelOptions;
  #nextNamespaceId = 1;

  constructor(options: KernelOptions) {
    this.#options = options;
    this.host = new Namespace(0, true);
    this.host.references.add(this);
    this.addLink(this.host, { name: 'lo', hardwareAddress: '00:00:00:00:00:00', up: true });
  }

  createNamespace(owner: string, reference: Reference): Namespace {
    const namespace = new Namespace(this.#nextNamespaceId++, false);
    namespace.owner = owner;
    namespace.references.add(reference);
    this.addLink(namespace, { name: 'lo', hardwareAddress: '00:00:00:00:00:00', up: true });
    return namespace;
  }

  release(namespace: Namespace, reference: Reference): void {
    namespace.references.delete(reference);
    if (namespace.references.size > 0 || namespace.isHost || namespace.isDying) return;
    namespace.isDying = true;
    const { simulator } = this.#options;
    const delayMs = simulator.tape.delay(5, 2_000);
    simulator.schedule(delayMs, undefined, 'network namespace is taken down', () => this.#takeDown(namespace));
  }

  /** Removes links that are in no PCI slot; network namespaces, too. */
  boot(): void {
    this.mounts.clear();
    for (const link of [...this.host.links]) {
      if (link.parentDevice === undefined && link.name !== 'lo') this.removeLink(link);
    }
  }

  addLink(namespace: Namespace, spec: LinkSpec): SimLink {
    const link = new SimLink(namespace, spec);
    if (namespace.byName(link.name) !== undefined) link.name = freeName(namespace, 'eth');
    link.altNames = link.altNames.filter((name) => namespace.byName(name) === undefined);
    link.index = namespace.nextIndex++;
    namespace.links.push(link);
    namespace.changed();
    return link;
  }

  addVeth(namespace: Namespace, end: LinkSpec, peer: LinkSpec): void {
    for (const name of [end.name, peer.name]) {
      if (namespace.byName(name) !== undefined) throw refused(-errno.eexist, { operation: 'create veth pair' });
    }
    const first = this.addLink(namespace, { ...end, kind: 'veth' });
    const second = this.addLink(namespace, { ...peer, kind: 'veth' });
    first.peer = second;
    second.peer = first;
  }

  /** The other end of a pair is also removed. */
  removeLink(link: SimLink, by?: string): void {
    if (link.isGone) return;
    link.isGone = true;
    const { links } = link.namespace;
    links.splice(links.indexOf(link), 1);
    for (const observer of this.observers) observer.removed(link, by);
    for (const member of links.filter(({ master }) => master === link)) this.#release(member);
    this.#release(link);
    link.namespace.changed();
    if (link.peer !== undefined) this.removeLink(link.peer, by);
  }

  /** In the order of the kernel's `do_setlink`: changes before a failure have taken effect. */
  change(namespace: Namespace, index: number, change: LinkChange, target: Namespace | undefined, by: string): void {
    const link = this.#link(namespace, index, 'change link');
    if (target !== undefined && target !== link.namespace) this.#move(link, target, change.name, by);
    const { name, hardwareAddress } = change;
    const subject = { operation: `change ${Object.keys(change).join(', ')} of link`, interfaceName: link.name };
    if (hardwareAddress !== undefined && hardwareAddress.toLowerCase() !== link.hardwareAddress) {
      const admin = link.adminAddress?.();
      if (admin !== undefined && admin !== hardwareAddress.toLowerCase()) throw refused(-eperm, subject);
      link.hardwareAddress = hardwareAddress.toLowerCase();
    }
    if (change.mtuBytes !== undefined) {
      const { minMtuBytes = 0, maxMtuBytes = Infinity } = link.mtuLimits ?? {};
      if (change.mtuBytes < minMtuBytes || change.mtuBytes > maxMtuBytes) throw refused(-errno.einval, subject);
      for (const each of [link, ...membersOf(link)]) each.mtuBytes = change.mtuBytes;
    }
    if (change.group !== undefined) link.group = change.group;
    if (name !== undefined && name !== link.name) {
      if (link.up && !this.#options.renamesLinksThatAreUp) throw refused(-errno.ebusy, subject);
      // Including an alternative name of the link itself.
      if (link.namespace.byName(name) !== undefined) throw refused(-errno.eexist, subject);
      link.name = name;
    }
    if (change.alias !== undefined) link.alias = change.alias;
    if (change.broadcastAddress !== undefined) link.broadcastAddress = change.broadcastAddress;
    if (change.master !== undefined) this.#join(link, link.namespace.byIndex(change.master));
    this.#changeFlags(link, change);
    if (change.txQueueLength !== undefined) link.txQueueLength = change.txQueueLength;
    if (change.linkMode !== undefined) link.linkMode = change.linkMode;
    if (change.detachXdp !== undefined) link.xdp = link.xdp.filter((mode) => mode !== change.detachXdp);
    link.namespace.changed();
  }

  addAltName(namespace: Namespace, index: number, name: string): void {
    const link = this.#link(namespace, index, 'add alternative name');
    if (namespace.byName(name) !== undefined) throw refused(-errno.eexist, { operation: 'add alternative name' });
    link.altNames.push(name);
    namespace.changed();
  }

  removeAltNames(namespace: Namespace, index: number, keep: readonly string[]): void {
    const link = namespace.byIndex(index);
    if (link === undefined) return;
    link.altNames = link.altNames.filter((name) => keep.includes(name));
    namespace.changed();
  }

  setQdisc(namespace: Namespace, index: number, place: QdiscPlace, kind: string | undefined): void {
    const link = this.#link(namespace, index, 'change qdisc');
    if (kind !== undefined && link.qdiscs[place] !== undefined) {
      throw refused(-errno.eexist, { operation: 'add qdisc' });
    }
    if (kind === undefined && link.qdiscs[place] === undefined) {
      throw refused(-errno.enoent, { operation: 'remove qdisc' });
    }
    if (kind === undefined) delete link.qdiscs[place];
    else link.qdiscs[place] = kind;
  }

  addAddress(namespace: Namespace, index: number, cidr: string): void {
    const link = this.#link(namespace, index, 'add address');
    if (link.addresses.has(cidr)) throw refused(-errno.eexist, { operation: `add address ${cidr}` });
    link.addresses.set(cidr, { cidr, scope: 'global', tentative: false, dadFailed: false });
    namespace.changed();
  }

  removeAddress(namespace: Namespace, index: number, cidr: string): void {
    const link = this.#link(namespace, index, 'remove address');
    if (!link.addresses.delete(cidr)) throw refused(-errno.eaddrnotavail, { operation: `remove address ${cidr}` });
    namespace.changed();
  }

  addRoute(namespace: Namespace, { index, ...route }: NewRoute): void {
    const link = this.#link(namespace, index, 'add route');
    const keyOf = (each: RouteSpec) => routeKey(each.destination, each);
    const isThere = namespace.links.some(({ routes }) => routes.some((each) => keyOf(each) === keyOf(route)));
    if (isThere) throw refused(-errno.eexist, { operation: `add route to ${route.destination}` });
    link.routes.push(route);
  }

  findRoutes(namespace: Namespace, index: number, wanted: readonly RouteId[]): (Route | undefined)[] {
    const routes = namespace.byIndex(index)?.routes ?? [];
    const messages = routes.map((route) => Buffer.concat(encodeRoute({ ...route, index })));
    return findRoutes(messages, index, wanted);
  }

  addEntry<Entry>(namespace: Namespace, index: number, table: EntryTable<Entry>, entry: Entry): void {
    const link = this.#link(namespace, index, `add ${table.name}`);
    const [entries, key] = [this.#entriesOf(namespace, link, table), table.format(entry)];
    if (table.name === 'rules' && entries.has(key)) throw refused(-errno.eexist, { operation: `add rule ${key}` });
    entries.set(key, Buffer.concat(table.encode(entry, index)));
  }

  entries<Entry>(namespace: Namespace, index: number, table: EntryTable<Entry>): Buffer[] {
    return [...this.#entriesOf(namespace, this.#link(namespace, index, `list ${table.name}`), table).values()];
  }

  #entriesOf<Entry>(namespace: Namespace, link: SimLink, { name }: EntryTable<Entry>): Map<string, Buffer> {
    return name === 'rules' ? namespace.rules : link.neighbors;
  }

  /** @returns whether the link's bond now uses another member */
  setCable(link: SimLink, isPlugged: boolean): boolean {
    link.hasCable = isPlugged;
    const before = link.master?.active;
    if (link.master?.kind === 'bond') chooseActive(link.master);
    link.namespace.changed();
    return link.master?.active !== before;
  }

  #join(link: SimLink, master: SimLink | undefined): void {
    if (master === link.master) return;
    this.#release(link);
    if (master?.kind === 'bond' && link.up) throw refused(-eperm, { operation: 'join bond', interfaceName: link.name });
    link.master = master;
    if (master?.kind === 'vrf') this.#restart(link);
    if (master?.kind !== 'bond') return;
    link.up = true;
    link.mtuBytes = master.mtuBytes;
    chooseActive(master);
  }

  /** From a VRF, or from a bond with `fail_over_mac=active`. */
  #release(link: SimLink): void {
    const { master } = link;
    link.master = undefined;
    if (master?.kind === 'vrf') this.#restart(link);
    if (master?.kind !== 'bond') return;
    link.up = false;
    chooseActive(master);
  }

  #link(namespace: Namespace, index: number, operation: string): SimLink {
    const link = namespace.byIndex(index);
    if (link === undefined) throw refused(-errno.enodev, { operation, interfaceName: `#${index}` });
    return link;
  }

  #changeFlags(link: SimLink, { flags = {}, up }: LinkChange): void {
    for (const [flag, isSet] of Object.entries(flags) as [LinkFlag, boolean][]) {
      link.flags = link.flags.filter((each) => each !== flag);
      if (isSet) link.flags.push(flag);
    }
    if (up === undefined || up === link.up) return;
    link.up = up;
    if (!up) loseEntries(link);
    else if (this.#options.hasIpv6 && !link.namespace.isHost) this.#addIpv6(link);
  }

  /** One that enters or leaves a VRF is set down and up again. */
  #restart(link: SimLink): void {
    if (!link.up) return;
    loseEntries(link);
    if (this.#options.hasIpv6 && !link.namespace.isHost) this.#addIpv6(link);
  }

  /** Of hardware, or of a bond: one that a router has announced. */
  #addIpv6(link: SimLink): void {
    const { simulator } = this.#options;
    const { namespace } = link;
    if (link.master?.kind === 'bond' || (link.parentDevice === undefined && link.kind !== 'bond')) return;
    const cidr = `2001:db8::${(1 + Number.parseInt(link.hardwareAddress.slice(-2), 16)).toString(16)}/64`;
    const address = { cidr, scope: 'global', tentative: true, dadFailed: false, dynamic: true } as const;
    link.addresses.set(cidr, address);
    simulator.schedule(1_000 + 1_000 * simulator.tape.fraction('dad'), undefined, 'address is ready', () => {
      if (link.namespace !== namespace || link.addresses.get(cidr) !== address) return;
      link.addresses.set(cidr, { ...address, tentative: false });
      link.readyAtMs = simulator.nowMs;
      namespace.changed();
      for (const observer of this.observers) observer.addressReady(link);
    });
  }

  /** The name is used only if its own is taken: the link is renamed after the move. */
  #move(link: SimLink, target: Namespace, name: string | undefined, by: string | undefined): void {
    const subject = { operation: 'move link', interfaceName: link.name };
    if (target.isDying) throw refused(-errno.einval, subject);
    let moved = link.name;
    if (target.byName(moved) !== undefined) {
      if (name === undefined || target.byName(name) !== undefined) throw refused(-errno.eexist, subject);
      moved = name;
    }
    if (link.altNames.some((each) => target.byName(each) !== undefined)) throw refused(-errno.eexist, subject);
    this.#transfer(link, target, moved, by);
  }

  #transfer(link: SimLink, target: Namespace, name: string, by: string | undefined): void {
    const from = link.namespace;
    from.links.splice(from.links.indexOf(link), 1);
    this.#release(link);
    link.namespace = target;
    link.name = name;
    link.up = false;
    link.addresses.clear();
    link.sysctls.clear();
    link.neighbors.clear();
    link.routes = [];
    for (const place of Object.keys(link.qdiscs) as QdiscPlace[]) delete link.qdiscs[place];
    if (target.byIndex(link.index) !== undefined) link.index = target.nextIndex++;
    target.nextIndex = Math.max(target.nextIndex, link.index + 1);
    target.links.push(link);
    for (const observer of this.observers) observer.moved(link, from, target, by);
    from.changed();
    target.changed();
    if (target.isHost) this.#udev(link);
  }

  #udev(link: SimLink): void {
    const { simulator, udevAddsAltNames, udevNameOf } = this.#options;
    const name = udevNameOf(link);
    if (!udevAddsAltNames || name === undefined || link.name === name) return;
    simulator.schedule(simulator.tape.delay(3, 200), undefined, 'udev', () => {
      if (link.isGone || !link.namespace.isHost || this.host.byName(name) !== undefined) return;
      simulator.trace('udev', `gives ${link.name} the alternative name ${name}`);
      link.altNames.push(name);
    });
  }

  /** Hardware returns to the host under its current name; other links are removed. */
  #takeDown(namespace: Namespace): void {
    for (const link of [...namespace.links]) {
      if (link.parentDevice === undefined) this.removeLink(link);
      else {
        link.altNames = link.altNames.filter((name) => this.host.byName(name) === undefined);
        const name = this.host.byName(link.name) === undefined ? link.name : freeName(this.host, 'dev');
        this.#transfer(link, this.host, name, undefined);
      }
    }
  }
}

/** What a link loses that is set down. */
function loseEntries(link: SimLink): void {
  link.routes = [];
  link.neighbors.clear();
  for (const cidr of [...link.addresses.keys()]) if (cidr.includes(':')) link.addresses.delete(cidr);
}

function membersOf(bond: SimLink): SimLink[] {
  return bond.kind === 'bond' ? bond.namespace.links.filter(({ master }) => master === bond) : [];
}

function chooseActive(bond: SimLink): void {
  const members = membersOf(bond);
  const [first] = members.filter(({ hasCable }) => hasCable);
  if (bond.active !== undefined && members.includes(bond.active) && (bond.active.hasCable || !first)) return;
  bond.active = first ?? members[0];
  if (bond.active !== undefined) bond.hardwareAddress = bond.active.hardwareAddress;
}

function freeName(namespace: Namespace, prefix: string): string {
  for (let number = 0; ; number++) {
    if (namespace.byName(`${prefix}${number}`) === undefined) return `${prefix}${number}`;
  }
}
