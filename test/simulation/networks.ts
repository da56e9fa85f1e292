import type { LinkConnection, NetworkNamespace, Networks } from '../../src/driver/vf/networks.ts';
import { refused } from '../../src/node/netlink/errors.ts';
import {
  type Address,
  type EntryTable,
  type EthtoolGroup,
  type EthtoolValues,
  type InterfaceSysctls,
  type Link,
  type LinkChange,
  type LinkEthtool,
  type LinkSelector,
  type LinkTable,
  type LinkTraffic,
  NetlinkError,
  type NewBond,
  type NewLink,
  type NewRoute,
  type NewVeth,
  type NewVrf,
  type QdiscPlace,
  type Route,
  type RouteId,
  type VfChange,
  type VfInfo,
  type VfTraffic,
} from '../../src/node/netlink/index.ts';
import type { Hardware } from './hardware.ts';
import type { Kernel } from './kernel.ts';
import type { Namespace, Reference, SimLink } from './links.ts';
import type { Process, Simulator } from './simulator.ts';

const noTraffic = { rxBytes: 0, txBytes: 0, rxPackets: 0, txPackets: 0, rxDropped: 0, txDropped: 0 };
const enodev = 19;
const eexist = 17;
const ebadf = 9;
/** Requests that appear in the trace. */
const changes = /^(set|add[A-Z]|remove|create|delete)/;
const usualMs = 0.1;
const slowMs = 60;

export interface SystemOptions {
  simulator: Simulator;
  kernel: Kernel;
  hardware: Hardware;
  process: Process;
  /** Whether the current request to the kernel gets lost. @param link the one that it names by its index */
  isLost: (isChange: boolean, link: SimLink | undefined) => boolean;
  /** Whether there is no descriptor for the current call. */
  readFails: () => boolean;
}

/** rtnetlink in one namespace, for one process. */
export class SimConnection implements LinkConnection {
  readonly #options: SystemOptions;
  readonly #namespace: Namespace;
  #last: Promise<unknown> = Promise.resolve();
  readonly #resolve: (fd: number) => Namespace | undefined;

  constructor(options: SystemOptions, namespace: Namespace, resolve: (fd: number) => Namespace | undefined) {
    this.#options = options;
    this.#namespace = namespace;
    this.#resolve = resolve;
  }

  links(): Promise<Link[]> {
    return this.#ask('links', () => this.#namespace.links.map((link) => link.view()));
  }

  async linkTable(): Promise<LinkTable> {
    const links = await this.links();
    return { all: () => links, candidates: () => links };
  }

  link(by: LinkSelector): Promise<Link | undefined> {
    const find = () => ('index' in by ? this.#namespace.byIndex(by.index) : this.#namespace.byName(by.name));
    return this.#ask('link', () => find()?.view(), 'index' in by ? by.index : undefined);
  }

  setLink(index: number, change: LinkChange): Promise<void> {
    const { kernel, process } = this.#options;
    const { netns, ...rest } = change;
    return this.#ask(
      'setLink',
      () => {
        const target = netns === undefined ? undefined : this.#resolve(netns.fd);
        if (netns !== undefined && target === undefined) throw refused(-ebadf, { operation: 'move link' });
        kernel.change(this.#namespace, index, rest, target, process.name);
      },
      index,
      () => `#${index} ${describe(change)}`,
    );
  }

  addAltName(index: number, name: string): Promise<void> {
    return this.#ask(`addAltName ${name}`, () => this.#options.kernel.addAltName(this.#namespace, index, name));
  }

  removeAltNames(index: number, keep: readonly string[] = []): Promise<void> {
    const effect = () => this.#options.kernel.removeAltNames(this.#namespace, index, keep);
    return this.#ask('removeAltNames', effect, index);
  }

  qdisc(index: number, place: QdiscPlace): Promise<string | undefined> {
    return this.#ask('qdisc', () => this.#namespace.byIndex(index)?.qdiscs[place], index);
  }

  addQdisc(index: number, place: QdiscPlace, kind: string): Promise<void> {
    return this.#ask(`addQdisc ${kind}`, () => this.#options.kernel.setQdisc(this.#namespace, index, place, kind));
  }

  removeQdisc(index: number, place: QdiscPlace): Promise<void> {
    return this.#ask('removeQdisc', () => this.#options.kernel.setQdisc(this.#namespace, index, place, undefined));
  }

  addresses(index?: number): Promise<Address[]> {
    const effect = () =>
      this.#namespace.links
        .filter((link) => index === undefined || link.index === index)
        .flatMap((link) => [...link.addresses.values()].map((address) => ({ ...address, index: link.index })));
    return this.#ask('addresses', effect, index);
  }

  /** All addresses in the simulation can be reached. */
  reachableAddresses(): Promise<Address[]> {
    return this.addresses();
  }

  async defaultRoutes(): Promise<Route[]> {
    return [];
  }

  addAddress(index: number, cidr: string): Promise<void> {
    return this.#ask(`addAddress ${cidr}`, () => this.#options.kernel.addAddress(this.#namespace, index, cidr));
  }

  removeAddress(index: number, cidr: string): Promise<void> {
    return this.#ask(`removeAddress ${cidr}`, () => this.#options.kernel.removeAddress(this.#namespace, index, cidr));
  }

  addRoute(route: NewRoute): Promise<void> {
    return this.#ask('addRoute', () => this.#options.kernel.addRoute(this.#namespace, route));
  }

  findRoutes(index: number, wanted: readonly RouteId[]): Promise<{ found: (Route | undefined)[]; isCut: boolean }> {
    const find = () => this.#options.kernel.findRoutes(this.#namespace, index, wanted);
    return this.#ask('routes', () => ({ found: find(), isCut: false }));
  }

  addEntry<Entry>(table: EntryTable<Entry>, index: number, entry: Entry): Promise<void> {
    return this.#ask(`add ${table.name}`, () => this.#options.kernel.addEntry(this.#namespace, index, table, entry));
  }

  entries<Entry>(table: EntryTable<Entry>, index: number): Promise<Entry[]> {
    return this.#ask(`list ${table.name}`, () => {
      const { kernel } = this.#options;
      return kernel.entries(this.#namespace, index, table).flatMap((message) => table.decode(message) ?? []);
    });
  }

  /** Takes no time and no draw: schedules that set no rings do not change with it. */
  async rings(index: number): Promise<EthtoolValues> {
    return { ...this.#linkAt(index, 'read rings').rings };
  }

  setRings(index: number, rings: EthtoolValues): Promise<void> {
    return this.#ask('setRings', () => void Object.assign(this.#linkAt(index, 'set rings').rings, rings), index);
  }

  #linkAt(index: number, operation: string): SimLink {
    const link = this.#namespace.byIndex(index);
    if (link === undefined) throw refused(-enodev, { operation });
    return link;
  }

  createVeth({ peer, ...end }: NewVeth): Promise<void> {
    return this.#ask(`createVeth ${end.name}`, () => {
      this.#options.kernel.addVeth(this.#namespace, toSpec(end), toSpec(peer));
    });
  }

  createBridge(bridge: NewLink): Promise<void> {
    return this.#ask(`createBridge ${bridge.name}`, () => {
      this.#options.kernel.addLink(this.#namespace, { ...toSpec(bridge), kind: 'bridge' });
    });
  }

  createBond(bond: NewBond): Promise<void> {
    const { kernel } = this.#options;
    return this.#ask(`createBond ${bond.name}`, () => {
      if (this.#namespace.byName(bond.name) !== undefined) throw refused(-eexist, { operation: 'create bond' });
      kernel.addLink(this.#namespace, { ...toSpec(bond), kind: 'bond' });
    });
  }

  createVrf({ table, ...vrf }: NewVrf): Promise<void> {
    return this.#ask(`createVrf ${vrf.name}`, () => {
      if (this.#namespace.byName(vrf.name) !== undefined) throw refused(-eexist, { operation: 'create VRF' });
      this.#options.kernel.addLink(this.#namespace, { ...toSpec(vrf), kind: 'vrf', vrfTable: table });
    });
  }

  deleteLink(index: number): Promise<void> {
    const { kernel, process } = this.#options;
    return this.#ask(`deleteLink #${index}`, () => {
      const link = this.#namespace.byIndex(index);
      if (link === undefined) throw refused(-enodev, { operation: 'delete link' });
      kernel.removeLink(link, process.name);
    });
  }

  vfInfos(pfIndex: number): Promise<VfInfo[]> {
    return this.#ask('vfInfos', () => this.#options.hardware.vfInfos(pfIndex));
  }

  /** Nothing sends anything here. */
  vfTraffic(pfIndex: number): Promise<VfTraffic[]> {
    const vfs = () => this.#options.hardware.vfInfos(pfIndex);
    return this.#ask('vfTraffic', () => vfs().map(({ vfIndex }) => ({ vfIndex, ...noTraffic })));
  }

  linkTraffic(index: number): Promise<LinkTraffic | undefined> {
    const find = () => this.#namespace.byIndex(index);
    return this.#ask('linkTraffic', () => find() && { ...noTraffic, rxErrors: 0, txErrors: 0 });
  }

  setVf(pfIndex: number, vfIndex: number, change: VfChange): Promise<void> {
    const effect = () => this.#options.hardware.setVf(pfIndex, vfIndex, change);
    return this.#ask('setVf', effect, undefined, () => `${vfIndex} ${JSON.stringify(change)}`);
  }

  #ask<T>(what: string, effect: () => T, index?: number, details = () => ''): Promise<T> {
    const { simulator, process, isLost } = this.#options;
    const isChange = changes.test(what);
    if (isChange) {
      simulator.trace(process.name, () => `${what} ${details()} in ${nameOf(this.#namespace)}`);
    }
    const run = () =>
      process.call(what, simulator.tape.answerDelay(usualMs, slowMs), () => {
        const link = index === undefined ? undefined : this.#namespace.byIndex(index);
        if (isLost(isChange, link)) throw new NetlinkError('netlink-lost', `no answer to ${what}`, { retriable: true });
        return effect();
      });
    // Like a socket: requests are executed in the order in which they were made.
    const answer = this.#last.then(run);
    this.#last = answer.catch(() => undefined);
    return answer;
  }
}

/** The namespaces of the simulated node, for one process. */
export class SimNetworks implements Networks {
  readonly host: { readonly connection: SimConnection; readonly ethtool: LinkEthtool } & Pick<
    NetworkNamespace,
    'netns' | 'watch'
  >;
  readonly #options: SystemOptions;
  readonly #open = new Map<number, { namespace: Namespace; reference: Reference }>();
  #nextFd = 3;

  constructor(options: SystemOptions) {
    this.#options = options;
    const { process, kernel } = options;
    this.host = this.#handle(kernel.host, '/proc/thread-self/ns/net');
    process.onEnd(() => this.#closeAll());
  }

  open(path: string): NetworkNamespace | undefined {
    const { kernel, process, readFails } = this.#options;
    process.point(`open ${path}`);
    if (readFails()) {
      throw new NetlinkError('netns-refused', `cannot open network namespace ${path}`, { errno: 'EMFILE' });
    }
    const namespace = kernel.mounts.get(path);
    if (namespace === undefined || namespace === 'plain file' || namespace.isDying) return undefined;
    return this.#handle(namespace, path);
  }

  isGone(path: string): boolean {
    return !this.#options.readFails() && !this.#options.kernel.mounts.has(path);
  }

  isStill(identity: string, path: string): boolean {
    const { kernel, process } = this.#options;
    process.point(`look at ${path}`);
    const namespace = kernel.mounts.get(path);
    if (namespace === undefined || namespace === 'plain file' || namespace.isDying) return false;
    return identityOf(namespace) === identity;
  }

  list(dir: string): string[] {
    return [...this.#options.kernel.mounts.keys()].filter((path) => path.startsWith(`${dir}/`));
  }

  #handle(namespace: Namespace, path: string) {
    const { kernel, process, simulator } = this.#options;
    const fd = this.#nextFd++;
    const reference = {};
    namespace.references.add(reference);
    this.#open.set(fd, { namespace, reference });
    const resolve = (each: number) => this.#open.get(each)?.namespace;
    const connection = new SimConnection(this.#options, namespace, resolve);
    const setRings = (index: number, _: EthtoolGroup, rings: EthtoolValues) => connection.setRings(index, rings);
    return {
      netns: { fd, path },
      connection,
      isHost: namespace.isHost,
      identity: identityOf(namespace),
      writeSysctls: async (name: string, settings: InterfaceSysctls) => {
        process.point('write sysctls');
        const sysctls = namespace.byName(name)?.sysctls;
        for (const [key, value] of Object.entries(settings)) sysctls?.set(key, `${value}`);
        return [];
      },
      readSysctls: (name: string) => namespace.byName(name)?.sysctls ?? new Map<string, string>(),
      ethtool: {
        read: async (index: number) => ({ rings: await connection.rings(index) }),
        effective: (index: number) => connection.rings(index),
        set: setRings,
        apply: setRings,
      },
      packets: () => ({ send: () => undefined, receive: () => undefined, [Symbol.dispose]: () => undefined }),
      watch: (onChange: () => void): Disposable => {
        const watched = {};
        let isPending = false;
        const watcher = () => {
          // Messages waiting in the socket are read together.
          if (isPending) return;
          isPending = true;
          simulator.schedule(usualMs, process, 'network change', () => {
            isPending = false;
            if (namespace.watchers.has(watcher)) onChange();
          });
        };
        namespace.watchers.add(watcher);
        namespace.references.add(watched);
        const end = () => {
          if (!namespace.watchers.delete(watcher)) return;
          kernel.release(namespace, watched);
        };
        process.onEnd(end);
        return { [Symbol.dispose]: end };
      },
      [Symbol.dispose]: () => {
        if (this.#open.delete(fd)) kernel.release(namespace, reference);
      },
    };
  }

  #closeAll(): void {
    for (const { namespace, reference } of this.#open.values()) this.#options.kernel.release(namespace, reference);
    this.#open.clear();
  }
}

function toSpec({ name, hardwareAddress = '02:00:00:00:00:01', mtuBytes }: NewLink) {
  return { name, hardwareAddress, ...(mtuBytes === undefined ? {} : { mtuBytes }) };
}

function identityOf({ id }: Namespace): string {
  return `${id}`;
}

function nameOf(namespace: Namespace): string {
  return namespace.isHost ? 'the host' : `the namespace of ${namespace.owner}`;
}

function describe({ netns, ...change }: LinkChange): string {
  return [...(netns === undefined ? [] : [`to ${netns.path}`]), JSON.stringify(change)].join(' ');
}
