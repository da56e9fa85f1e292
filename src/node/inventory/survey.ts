import { defined } from '../../lib/defined.ts';
import { isRepresentor, type Link, NetlinkError, type RtnlConnection } from '../netlink/index.ts';
import { SriovError, UnknownVfStateError } from '../sriov/errors.ts';
import type { LinkType, NetInterface } from '../sriov/net-interface.ts';
import type { RdmaNetnsMode } from '../sriov/rdma-mode.ts';
import type { NetworkFunctions, PciFunction, Pf, Sysfs, Vf } from '../sriov/sysfs.ts';
import type { EswitchMode, NetworkDevice } from './device.ts';
import { HostNetwork, type Usage } from './host-network.ts';
import { OpenPeers } from './open-peers.ts';

/** Original properties of a device that its claim has changed. */
export interface HeldFacts {
  /** The device as it was offered when its claim was prepared. */
  offered?: NetworkDevice;
  /** Kernel driver; `undefined` if none was bound. Absent if the claim did not change it. */
  driver?: string | undefined;
  interfaceName?: string;
  /** Alternative names of the device's interface. */
  altNames?: string[];
  hardwareAddress?: string;
  mtuBytes?: number;
  /** Whether the device is in a pod and has an interface there. */
  isInPod?: true;
}

/** The devices that are prepared for claims, by PCI address. */
export type HeldDevices = ReadonlyMap<string, HeldFacts>;

/** Facts about an interface that are remembered while the host does not see it. */
export interface Remembered {
  hardwareAddress?: string;
  mtuBytes?: number;
  linkType?: LinkType;
  linkSpeedMbps?: number;
}

/** A PCI function, with the known facts about its interface. */
export type Seen<T extends PciFunction> = T &
  Remembered & {
    interfaceName?: string;
    /** All known names of the function's ports. */
    names: string[];
    links: Link[];
    /** Whether the function's interface is in another network namespace. */
    isElsewhere: boolean;
    /** Member of the function's IOMMU group that a program has open although no claim has it. */
    openPeer?: string;
  };

/** Sources of a survey. */
export interface SurveyedNode {
  sysfs: Sysfs;
  /** Netlink connection in the host's network namespace. */
  connection: Pick<RtnlConnection, 'defaultRoutes' | 'links' | 'linkTable' | 'reachableAddresses' | 'vfInfos'>;
  /** Whether `sysfs` is the tree of simulated VFs. */
  simulated: boolean;
}

export interface SurveyOptions extends SurveyedNode {
  held: HeldDevices;
  /** Facts from the previous survey. */
  remembered: ReadonlyMap<string, Remembered>;
}

/** The node's network functions at one moment: facts from sysfs, and from netlink about their interfaces. */
export class Survey {
  readonly functions: NetworkFunctions;
  /** Facts for the next survey. */
  readonly remembered = new Map<string, Remembered>();
  readonly network: HostNetwork;
  readonly #options: SurveyOptions;
  readonly #rdmaDevices: Map<string, string[]>;
  readonly #rdmaNetnsMode: RdmaNetnsMode | undefined;
  readonly #openPeers: OpenPeers;

  private constructor(
    options: SurveyOptions,
    functions: NetworkFunctions,
    network: HostNetwork,
    rdmaDevices: Map<string, string[]>,
    rdmaNetnsMode: RdmaNetnsMode | undefined,
  ) {
    this.#options = options;
    this.functions = functions;
    this.network = network;
    this.#rdmaDevices = rdmaDevices;
    this.#rdmaNetnsMode = rdmaNetnsMode;
    this.#openPeers = new OpenPeers(options.sysfs, options.held);
  }

  /** Reads the node's functions, links, routes and addresses. @throws SriovError `sysfs-unreadable`; NetlinkError */
  static async begin(options: SurveyOptions): Promise<Survey> {
    const { sysfs, connection } = options;
    const [functions, rdmaDevices, rdmaNetnsMode, links, routes, addresses] = await Promise.all([
      sysfs.networkFunctions(),
      sysfs.rdmaDevices(),
      sysfs.rdmaNetnsMode(),
      connection.links(),
      connection.defaultRoutes(),
      connection.reachableAddresses(),
    ]);
    return new Survey(options, functions, new HostNetwork(links, routes, addresses), rdmaDevices, rdmaNetnsMode);
  }

  /** Reads a PF. @throws SriovError */
  async pf(pciAddress: string): Promise<Seen<Pf>> {
    return this.#remember(await this.#seePort(await this.#see(await this.#options.sysfs.pf(pciAddress))));
  }

  /** Reads a function that is neither a PF nor a VF. @throws SriovError */
  async nic(pciAddress: string): Promise<Seen<PciFunction>> {
    return this.#remember(await this.#seePort(await this.#see(await this.#options.sysfs.pciFunction(pciAddress))));
  }

  /**
   * Reads the VFs of a PF, in order of their indices.
   * @param onProblem called for VFs that cannot be read and are omitted, and for a PF that cannot list its VFs
   */
  async vfs(pf: Seen<Pf>, entries: Pf['vfs'], onProblem: (problem: SriovError) => void): Promise<Seen<Vf>[]> {
    const found = await Promise.all(
      entries.map(async (entry) => {
        try {
          return [await this.#see(await this.#options.sysfs.vf(pf, entry))];
        } catch (error) {
          if (!(error instanceof SriovError)) throw error;
          onProblem(error);
          return [];
        }
      }),
    );
    const vfs = await this.#withAdminAddresses(found.flat(), pf, onProblem);
    // A VF shares the port of its PF. Its own interface is seldom up, so that it could not report the port.
    const { linkType, linkSpeedMbps } = pf;
    const port = defined({ linkType, linkSpeedMbps });
    return await Promise.all(
      vfs.map(async (vf) =>
        this.#remember(pf.interfaceName === undefined ? await this.#seePort(vf) : { ...vf, ...port }),
      ),
    );
  }

  /** Returns the function's RDMA devices, and the node's RDMA namespace mode if there are any. */
  rdmaOf(pciAddress: string): Pick<NetworkDevice, 'rdmaDevices' | 'rdmaNetnsMode'> {
    const rdmaDevices = this.#rdmaDevices.get(pciAddress) ?? [];
    return rdmaDevices.length === 0
      ? { rdmaDevices }
      : { rdmaDevices, ...defined({ rdmaNetnsMode: this.#rdmaNetnsMode }) };
  }

  /**
   * Returns the node's use of the function that also concerns its VFs. Uses of representors only concern the VFs' traffic, so
   * they do not count.
   */
  usageOf({ links }: Seen<PciFunction>): Usage | undefined {
    return this.network.usageOf(links.filter((link) => !isRepresentor(link)));
  }

  /**
   * Returns the node's use of the function, including uses that only prevent offering the function itself, and not its VFs.
   * @param allowed uses that do not count
   */
  ownUsageOf({ links }: Seen<PciFunction>, allowed?: readonly Usage['reason'][]): Usage | undefined {
    const own = links.filter((link) => !isRepresentor(link));
    return this.network.ownUsageOf(own, allowed);
  }

  /** Adds facts about the function's interface, from netlink or, if netlink has none, from sysfs. */
  async #see<T extends PciFunction>(pciFunction: T): Promise<Seen<T>> {
    const { sysfs, simulated, held } = this.#options;
    const { pciAddress } = pciFunction;
    const { altNames = [], offered: _offered, ...heldFacts } = held.get(pciAddress) ?? {};
    const openPeer = held.has(pciAddress) ? undefined : await this.#openPeers.of(pciFunction);
    const known = { ...overlay(pciFunction, heldFacts), ...defined({ openPeer }) };
    const link = this.network.linkOf({ pciAddress, simulated });
    if (link !== undefined) {
      const links = simulated ? [link] : this.network.linksOf(pciAddress);
      const facts = { ...interfaceFacts(link), ...known };
      return { ...facts, names: namesOf(facts, altNames, links), links, isElsewhere: false };
    }
    const names = await sysfs.interfaceNames(pciAddress);
    const visible = names ?? [];
    const links = this.network.linksOf(pciAddress, visible);
    // Reading sysfs takes a thread for each file, so it is skipped if all facts of a claimed VF are remembered: they take
    // precedence anyway.
    const isAsked = links.length === 0 && visible.length > 0 && !isComplete(known);
    const [shown] = isAsked ? await sysfs.interfaces(pciAddress) : [];
    const own = links.find((each) => !isRepresentor(each)) ?? shown;
    const isVisible = links.length > 0 || (visible.length > 0 && !simulated);
    const isElsewhere = !isVisible && names !== undefined;
    const facts: T & { interfaceName?: string } = { ...(own === undefined ? {} : interfaceFacts(own)), ...known };
    return { ...facts, names: namesOf(facts, altNames, links), links, isElsewhere };
  }

  async #seePort<T extends PciFunction>(seen: Seen<T>): Promise<Seen<T>> {
    const { pciAddress, interfaceName } = seen;
    if (interfaceName === undefined) return seen;
    return { ...seen, ...(await this.#options.sysfs.port(pciAddress, interfaceName)) };
  }

  /**
   * Adds the MAC addresses that the PF has set for VFs without an interface on the host: VFs that are bound to vfio-pci, or
   * are in another namespace. Nothing else is read from the PF's list, and no decision depends on it: without the list, the
   * VFs are offered as they are.
   */
  async #withAdminAddresses(
    vfs: Seen<Vf>[],
    pf: Seen<Pf>,
    onProblem: (problem: SriovError) => void,
  ): Promise<Seen<Vf>[]> {
    const { connection, held } = this.#options;
    const pfLink = pf.links.find((link) => !isRepresentor(link));
    const isAsked = (vf: Seen<Vf>) => vf.hardwareAddress === undefined && !held.has(vf.pciAddress);
    // The list of an InfiniBand PF has room only for the beginning of a VF's address, so it is not read. Other lists are read
    // only if needed: some drivers ask the card's firmware about each VF, and the kernel blocks meanwhile.
    if (pfLink === undefined || pf.linkType === 'infiniband' || !vfs.some(isAsked)) return vfs;
    try {
      const infos = await connection.vfInfos(pfLink.index);
      const addresses = new Map(infos.map(({ vfIndex, hardwareAddress }) => [vfIndex, hardwareAddress]));
      return vfs.map((vf) => ({ ...defined({ hardwareAddress: addresses.get(vf.vfIndex) }), ...vf }));
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      onProblem(
        UnknownVfStateError.notListed({ device: pf.pciAddress, pf: `PF ${pfLink.name} (${pf.pciAddress})` }, error),
      );
      return vfs;
    }
  }

  #remember<T extends PciFunction>(seen: Seen<T>): Seen<T> {
    const { pciAddress } = seen;
    const all = { ...this.#options.remembered.get(pciAddress), ...seen };
    const { hardwareAddress, mtuBytes, linkType, linkSpeedMbps } = all;
    this.remembered.set(pciAddress, defined({ hardwareAddress, mtuBytes, linkType, linkSpeedMbps }));
    return all;
  }
}

function namesOf({ interfaceName }: HeldFacts, altNames: readonly string[], links: readonly Link[]): string[] {
  const ports = links.filter((link) => !isRepresentor(link));
  const own = interfaceName === undefined ? [] : [interfaceName];
  return [...new Set([...own, ...altNames, ...ports.flatMap((port) => [port.name, ...port.altNames])])];
}

function overlay<T extends PciFunction>(pciFunction: T, held: HeldFacts): T {
  if (!('driver' in held)) return { ...pciFunction, ...defined(held) };
  const { driver: _driver, ...rest } = pciFunction;
  return { ...rest, ...defined(held) } as T;
}

/** Returns whether all facts that sysfs has about an interface are known. */
function isComplete({ interfaceName, hardwareAddress, mtuBytes }: HeldFacts): boolean {
  return interfaceName !== undefined && hardwareAddress !== undefined && mtuBytes !== undefined;
}

function interfaceFacts({ name: interfaceName, hardwareAddress, mtuBytes }: Link | NetInterface) {
  return { interfaceName, mtuBytes, ...defined({ hardwareAddress }) };
}

/**
 * Returns facts about the PF of a VF. Representors exist only in switchdev mode, and every driver registers them below the
 * PF.
 */
export function ofPf({ interfaceName: pfName, links }: Seen<Pf>): { pfName?: string; eswitchMode?: EswitchMode } {
  const eswitchMode = links.some(isRepresentor) ? 'switchdev' : 'legacy';
  return pfName === undefined ? {} : { pfName, eswitchMode };
}

/** Returns a function without the facts that only matter within a survey. */
export function withoutView<T extends PciFunction>(seen: Seen<T>) {
  const {
    links: _links,
    names: _names,
    isElsewhere: _isElsewhere,
    isOpen: _isOpen,
    openPeer: _openPeer,
    ...rest
  } = seen;
  return rest;
}

/** Returns a function without its VFs, as a whole NIC. */
export function withoutVfs(seen: Seen<PciFunction> & Partial<Pf>) {
  const { vfs: _vfs, totalVfs: _totalVfs, ...facts } = withoutView(seen);
  return facts;
}
