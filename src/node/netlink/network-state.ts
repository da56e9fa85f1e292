import { type Address, isReachable } from './address.ts';
import { isMapped } from './cidr.ts';
import type { Link } from './link.ts';
import { isRepresentor } from './representor.ts';

/** Limit of `networkData.ips` in resource.k8s.io/v1. */
export const maxReportedAddresses = 16;

/** Facts about an interface in metadata, besides its addresses. */
export interface LinkFacts {
  interfaceName: string;
  /** MAC address, lower case with colons; absent for links without one. */
  hardwareAddress: string | undefined;
  mtuBytes: number;
  /** Whether the link is up and has a carrier. */
  linkUp: boolean;
}

/** Facts about the addresses of an interface in metadata. */
export interface InterfaceAddresses {
  /**
   * Canonical CIDRs in code point order, at most 16: those of global scope, or the link-local ones if there are none; no
   * temporary ones, and no IPv4-mapped IPv6 ones, which Kubernetes' API refuses. Of more than 16, those without a lifetime come first: hosts of the network choose the others.
   */
  ips: string[];
  /** Whether addresses are missing in `ips` because duplicate address detection is still running. */
  tentative: boolean;
  /** Those of `ips` whose duplicate address detection is running; absent: none. */
  unconfirmed?: string[];
  /** Whether one of `ips` is an IPv6 address from a router, with global scope; absent: none. */
  isAutoconfigured?: true;
  /** Addresses that are unusable, since another host has them; absent: none. At most 16. */
  duplicates?: string[];
}

/** Facts about a device's interface in its metadata. */
export interface NetworkState extends LinkFacts, InterfaceAddresses {}

/** Returns the facts about a link for its metadata. @param addresses of all links, or only of this one */
export function toNetworkState(link: Link, addresses: readonly Address[]): NetworkState {
  const { index, name: interfaceName, hardwareAddress, mtuBytes, up, carrier } = link;
  const own = addresses.filter(({ index: of, cidr, temporary }) => of === index && !temporary && !isMapped(cidr));
  const [duplicates, valid] = [own.filter(({ dadFailed }) => dadFailed), own.filter(({ dadFailed }) => !dadFailed)];
  const global = valid.filter(({ scope }) => isReachable(scope));
  // Even if all global ones are tentative: reporting link-local ones meanwhile would only confuse.
  const chosen = global.length > 0 ? global : valid.filter(({ scope }) => scope === 'link');
  const usable = chosen.filter(({ tentative }) => !tentative);
  const isAutoconfigured = usable.some(
    ({ dynamic, cidr, scope }) => dynamic && cidr.includes(':') && isReachable(scope),
  );
  const unconfirmed = usable.filter(({ optimistic }) => optimistic === true);
  return {
    interfaceName,
    hardwareAddress,
    ips: cidrsOf(usable),
    tentative: chosen.some(({ tentative }) => tentative),
    ...(unconfirmed.length > 0 && { unconfirmed: cidrsOf(unconfirmed) }),
    ...(isAutoconfigured && { isAutoconfigured }),
    ...(duplicates.length > 0 && { duplicates: cidrsOf(duplicates) }),
    mtuBytes,
    linkUp: up && carrier,
  };
}

function cidrsOf(addresses: readonly Address[]): string[] {
  const cidrs = (isDynamic: boolean) =>
    addresses.flatMap(({ cidr, dynamic = false }) => (dynamic === isDynamic ? [cidr] : [])).sort();
  return [...new Set([...cidrs(false), ...cidrs(true)])].slice(0, maxReportedAddresses).sort();
}

/** Kinds of links that hardware can have, too. */
const hardwareKinds = ['ipoib'];

/** Known facts about a VF, for finding its interface; the more, the better. */
export interface VfIdentity {
  /** PCI address with domain: `0000:3b:02.1`. */
  pciAddress?: string;
  /** Alias that was set when the link was created or moved. */
  alias?: string;
  /** Address of the interface when it was moved. Used only if exactly one link has it. */
  hardwareAddress?: string;
  /** Probable name; looked up first, and never sufficient. */
  interfaceName?: string;
}

/**
 * Finds the VF's interface among the links of a namespace: by the bus address that the kernel reports (Linux 5.14+), else
 * by alias or address. Never chooses a link that is known to belong to another device, nor, for a hardware VF, a link of a
 * virtual kind: a pod can create one with the VF's address.
 */
export function findVf(links: Link[], vf: VfIdentity): Link | undefined {
  const only = (matches: (link: Link) => boolean) => {
    const found = links.filter(matches);
    return found.length === 1 ? found[0] : undefined;
  };
  const same = (wanted: string | undefined, actual: string | undefined) => wanted !== undefined && wanted === actual;
  const byBus = links.find((link) => same(vf.pciAddress, link.parentDevice) && !isRepresentor(link));
  if (byBus !== undefined) return byBus;
  const maybe = (link: Link) => vf.pciAddress === undefined || isUnidentified(link);
  return (
    only((link) => maybe(link) && same(vf.alias, link.alias)) ??
    only((link) => maybe(link) && same(vf.hardwareAddress?.toLowerCase(), link.hardwareAddress))
  );
}

/** Returns whether a link may belong to a device that the kernel does not name: the case for hardware before Linux 5.14. */
export function isUnidentified({ parentDevice, kind, name }: Link): boolean {
  return parentDevice === undefined && (kind === undefined || hardwareKinds.includes(kind)) && name !== 'lo';
}
