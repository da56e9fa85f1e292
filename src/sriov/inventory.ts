import { findVf, isDefaultRoute, type Link, type Route, type RtnlConnection } from '../netlink/index.ts';
import { createVfDevice, linkIdentity, type VfDevice } from './device.ts';
import { SriovError } from './errors.ts';
import { type InventoryPolicy, includesVf, ruleFor } from './inventory-policy.ts';
import type { Pf, Sysfs, Vf } from './sysfs.ts';

export type ExclusionReason =
  /** Its interface carries the node's default route, itself or below a bond, bridge or VLAN. */
  | 'carries-default-route'
  /** Its interface is a port of a bond or bridge, or in a VRF. */
  | 'enslaved'
  /** The same of its PF. */
  | 'pf-carries-default-route'
  | 'pf-enslaved'
  /** The policy names others. */
  | 'not-selected';

/** A VF that is not offered, and why. */
export interface Exclusion {
  pciAddress: string;
  pfAddress: string;
  reason: ExclusionReason;
  /** The interface that it is about. */
  interfaceName?: string;
}

export interface InventoryReport {
  /** In the order of their PCI addresses. */
  devices: VfDevice[];
  excluded: Exclusion[];
  /** What could not be read; the VFs concerned are neither offered nor excluded. */
  problems: SriovError[];
}

export interface InventoryOptions {
  sysfs: Sysfs;
  /** Into the host's network namespace. */
  connection: Pick<RtnlConnection, 'links' | 'routes' | 'vfInfos'>;
  /** Whether `sysfs` is the tree of simulated VFs. */
  simulated: boolean;
  policy?: InventoryPolicy;
}

type LinkFacts = Pick<VfDevice, 'hardwareAddress' | 'mtuBytes'>;

interface HostNetwork {
  links: Link[];
  /** Indices of the links that the node's default routes depend on. */
  uplinks: Set<number>;
}

/**
 * Finds the VFs that can be offered. Remembers MAC and MTU of each: while a VF is in a pod its interface cannot be seen
 * from the host, and its attributes must not come and go with that.
 */
export class Inventory {
  /** Replaced when the operator changes it; the next scan follows. */
  policy: InventoryPolicy;
  readonly #options: InventoryOptions;
  readonly #lastSeen = new Map<string, LinkFacts>();

  constructor(options: InventoryOptions) {
    this.#options = options;
    this.policy = options.policy ?? {};
  }

  /**
   * One PF that cannot be read does not cost the others.
   * @throws SriovError `sysfs-unreadable` if nothing can be read; NetlinkError
   */
  async scan(): Promise<InventoryReport> {
    const { sysfs, connection } = this.#options;
    const [addresses, links, routes] = await Promise.all([
      sysfs.pfAddresses(),
      connection.links(),
      connection.routes(),
    ]);
    const network = { links, uplinks: findUplinks(links, routes) };
    const report: InventoryReport = { devices: [], excluded: [], problems: [] };
    for (const address of addresses) await this.#scanPf(address, network, report);
    report.devices.sort((a, b) => (a.pciAddress < b.pciAddress ? -1 : 1));
    return report;
  }

  async #scanPf(address: string, network: HostNetwork, report: InventoryReport): Promise<void> {
    const { sysfs, simulated } = this.#options;
    try {
      const pf = await this.#readPf(address);
      const devices = (await sysfs.vfs(pf)).map((vf) => createVfDevice(vf, simulated));
      const adminAddresses = await this.#adminAddresses(pf, devices, network);
      for (const device of devices) {
        const { pciAddress, pfAddress, vfIndex } = device;
        const link = linkOfVf(device, network);
        const exclusion = this.#exclusion(pf, device, link, network);
        if (exclusion !== undefined) report.excluded.push({ pciAddress, pfAddress, ...exclusion });
        else report.devices.push({ ...device, ...adminAddresses.get(vfIndex), ...this.#remember(pciAddress, link) });
      }
    } catch (error) {
      if (!(error instanceof SriovError)) throw error;
      report.problems.push(error);
    }
  }

  /** Switches VFs on where none is. Other numbers are left alone: to change one, all VFs would have to go first. */
  async #readPf(address: string): Promise<Pf> {
    const { sysfs } = this.#options;
    const pf = await sysfs.pf(address);
    const { numVfs = 0 } = ruleFor(this.policy, pf) ?? {};
    if (numVfs === 0 || pf.vfs.length > 0) return pf;
    await sysfs.setNumVfs(pf, numVfs);
    return await sysfs.pf(address);
  }

  /** What the PF has set as the addresses of VFs that have no interface here: bound to vfio-pci, or in a pod. */
  async #adminAddresses(pf: Pf, devices: VfDevice[], network: HostNetwork): Promise<Map<number, LinkFacts>> {
    const pfLink = linkOf(pf, network);
    if (pfLink === undefined || devices.every((device) => linkOfVf(device, network) !== undefined)) return new Map();
    const infos = await this.#options.connection.vfInfos(pfLink.index);
    return new Map(
      infos.flatMap(({ vfIndex, hardwareAddress }) =>
        hardwareAddress === undefined ? [] : [[vfIndex, { hardwareAddress }] as const],
      ),
    );
  }

  #exclusion(
    pf: Pf,
    vf: Vf,
    link: Link | undefined,
    network: HostNetwork,
  ): Pick<Exclusion, 'reason' | 'interfaceName'> | undefined {
    const rule = ruleFor(this.policy, pf);
    if (rule === undefined || !includesVf(rule.vfs, vf.vfIndex)) return { reason: 'not-selected' };
    const own = usage(link, network);
    if (own !== undefined) return { reason: own, interfaceName: link!.name };
    const pfLink = linkOf(pf, network);
    const pfUsage = rule.allowInUse ? undefined : usage(pfLink, network);
    return pfUsage === undefined ? undefined : { reason: `pf-${pfUsage}`, interfaceName: pfLink!.name };
  }

  #remember(pciAddress: string, link: Link | undefined): LinkFacts {
    if (link !== undefined) {
      const { hardwareAddress, mtuBytes } = link;
      this.#lastSeen.set(pciAddress, { mtuBytes, ...(hardwareAddress === undefined ? {} : { hardwareAddress }) });
    }
    return this.#lastSeen.get(pciAddress) ?? {};
  }
}

function linkOfVf(device: VfDevice, network: HostNetwork): Link | undefined {
  return findVf(network.links, linkIdentity(device)) ?? linkOf(device, network);
}

/** For PFs, and for kernels before 5.14, which do not tell a link's bus address. */
function linkOf(pciFunction: Pf | Vf, { links }: HostNetwork): Link | undefined {
  const { pciAddress, interfaceName } = pciFunction;
  return (
    links.find(({ parentDevice }) => parentDevice === pciAddress) ??
    links.find(({ name, parentDevice }) => name === interfaceName && parentDevice === undefined)
  );
}

function usage(link: Link | undefined, { uplinks }: HostNetwork): 'carries-default-route' | 'enslaved' | undefined {
  if (link === undefined) return undefined;
  if (uplinks.has(link.index)) return 'carries-default-route';
  return link.master === undefined ? undefined : 'enslaved';
}

/** The links of the default routes in any table, the ports of those that are bonds or bridges, and what VLANs are on. */
export function findUplinks(links: Link[], routes: Route[]): Set<number> {
  const uplinks = new Set<number>();
  const add = (index: number): void => {
    if (uplinks.has(index)) return;
    uplinks.add(index);
    for (const link of links) {
      if (link.master === index) add(link.index);
      if (link.index === index && link.lower !== undefined && link.lowerNetnsId === undefined) add(link.lower);
    }
  };
  for (const route of routes.filter(isDefaultRoute)) {
    for (const { index } of route.nextHops) if (index !== undefined) add(index);
  }
  return uplinks;
}
