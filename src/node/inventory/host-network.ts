import { findVf, isRepresentor, type Link, type Route } from '../netlink/index.ts';
import { type LinkOwner, linkIdentity } from './device.ts';

/** Use of an interface by the node itself. */
export interface Usage {
  reason: 'carries-default-route' | 'enslaved' | 'has-address' | 'has-upper';
  interfaceName: string;
}

/** The host's interfaces at one moment, and the host's uses of them. */
export class HostNetwork {
  readonly #links: Link[];
  readonly #byBus: Map<string | undefined, Link[]>;
  /** Indices of the links that the node's default routes depend on. */
  readonly #uplinks: Set<number>;
  /** Indices of the links with an address that other hosts can reach. */
  readonly #addressed: Set<number>;

  /**
   * @param routes default routes of the node
   * @param addresses addresses that other hosts can reach
   */
  constructor(links: Link[], routes: Route[], addresses: readonly { index: number }[] = []) {
    this.#links = links;
    this.#byBus = Map.groupBy(links, ({ parentDevice }) => parentDevice);
    this.#uplinks = findUplinks(links, routes);
    this.#addressed = new Set(addresses.map(({ index }) => index));
  }

  /**
   * Returns all links of a PCI function. Some cards have two ports, and a PF in switchdev mode has the representors of its
   * VFs.
   * @param names names of the function's interfaces, for kernels before 5.14, which do not report the bus address of a link
   */
  linksOf(pciAddress: string, names: string[] = []): Link[] {
    const found = this.#byBus.get(pciAddress);
    if (found !== undefined) return found;
    return (this.#byBus.get(undefined) ?? []).filter(({ name }) => names.includes(name));
  }

  /** Returns the link of a device. Looks up the bus address first, which is quick. */
  linkOf(device: LinkOwner): Link | undefined {
    const [link] = this.linksOf(device.pciAddress).filter((each) => !isRepresentor(each));
    return link ?? (device.simulated ? findVf(this.#links, linkIdentity(device)) : undefined);
  }

  /**
   * Returns the node's use of a device's links, including uses that only prevent offering the device itself.
   * @param allowed uses that do not count
   */
  ownUsageOf(links: Link[], allowed: readonly Usage['reason'][] = []): Usage | undefined {
    const usage = this.usageOf(links, allowed);
    if (usage !== undefined) return usage;
    const addressed = links.find(({ index }) => this.#addressed.has(index));
    if (addressed !== undefined && !allowed.includes('has-address'))
      return { reason: 'has-address', interfaceName: addressed.name };
    // `lower` of a veth is its other end, not a link below it.
    const isUpper = ({ lower, lowerNetnsId, kind }: Link, index: number) =>
      lower === index && lowerNetnsId === undefined && kind !== 'veth';
    const below = links.find(({ index }) => this.#links.some((link) => isUpper(link, index)));
    return below && { reason: 'has-upper', interfaceName: below.name };
  }

  /** Returns the node's use of links that prevents offering them and everything that depends on them. */
  usageOf(links: Link[], allowed: readonly Usage['reason'][] = []): Usage | undefined {
    const uplink = links.find(({ index }) => this.#uplinks.has(index));
    if (uplink !== undefined && !allowed.includes('carries-default-route'))
      return { reason: 'carries-default-route', interfaceName: uplink.name };
    const port = links.find(({ master }) => master !== undefined);
    return port && { reason: 'enslaved', interfaceName: port.name };
  }
}

/**
 * Returns the links that default routes in any table depend on: their own links, ports of bonds and bridges, and links below
 * VLANs.
 */
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
  for (const { links: outgoing } of routes) outgoing.forEach(add);
  return uplinks;
}
