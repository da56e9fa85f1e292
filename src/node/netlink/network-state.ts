import { type Address, isReachable } from './address.ts';
import { isMapped } from './cidr.ts';
import type { Link } from './link.ts';
import { isRepresentor } from './representor.ts';

/** Maximum number of addresses in `networkData.ips` of resource.k8s.io/v1. */
export const maxReportedAddresses = 16;

/** Facts about an interface that are in its metadata, besides its addresses. */
export interface LinkFacts {
  interfaceName: string;
  /** MAC address, lower case with colons; `undefined` for links without one. */
  hardwareAddress: string | undefined;
  mtuBytes: number;
  /** Whether the link is up and has a carrier. */
  linkUp: boolean;
}

/** Facts about the addresses of an interface that are in its metadata. */
export interface InterfaceAddresses {
  /**
   * Canonical CIDRs in code point order, at most 16: the addresses of global scope, or the link-local ones if there are none.
   * Temporary and IPv4-mapped IPv6 addresses are left out; Kubernetes' API refuses the latter. If there are more than 16,
   * those without a lifetime come first: hosts of the network choose the others.
   */
  ips: string[];
  /** Whether `ips` lacks addresses for which duplicate address detection is still running. */
  tentative: boolean;
  /** Addresses in `ips` for which duplicate address detection is still running; absent if there are none. */
  unconfirmed?: string[];
  /** Whether `ips` contains a global IPv6 address from a router; absent if not. */
  isAutoconfigured?: true;
  /** Addresses that cannot be used since another host has them, at most 16; absent if there are none. */
  duplicates?: string[];
}

/** Facts about a device's interface that are in its metadata. */
export interface NetworkState extends LinkFacts, InterfaceAddresses {}

/** Returns the facts about a link for its metadata. @param addresses addresses of all links, or only of this one */
export function toNetworkState(link: Link, addresses: readonly Address[]): NetworkState {
  const { index, name: interfaceName, hardwareAddress, mtuBytes, up, carrier } = link;
  const own = addresses.filter(({ index: of, cidr, temporary }) => of === index && !temporary && !isMapped(cidr));
  const [duplicates, valid] = [own.filter(({ dadFailed }) => dadFailed), own.filter(({ dadFailed }) => !dadFailed)];
  const global = valid.filter(({ scope }) => isReachable(scope));
  // Link-local addresses are not chosen even if all global ones are tentative: reporting them for a moment would only
  // confuse.
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

/** Kinds of links that hardware can have, besides none. */
const hardwareKinds = ['ipoib'];

/** Known facts about a VF, for finding its interface. More facts make the search more certain. */
export interface VfIdentity {
  /** PCI address with domain: `0000:3b:02.1`. */
  pciAddress?: string;
  /** Alias that was set when the link was created or moved. */
  alias?: string;
  /** Hardware address of the interface when it was moved. It counts only if exactly one link has it. */
  hardwareAddress?: string;
  /** Probable name of the interface. It is looked up first, and never counts alone. */
  interfaceName?: string;
}

/**
 * Finds the VF's interface among the links of a namespace: by the bus address that the kernel reports (Linux 5.14+),
 * otherwise by alias or hardware address. Never returns a link that is known to belong to another device, nor, for a hardware
 * VF, a link of a virtual kind: a pod can create a virtual link with the VF's address.
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

/** Returns whether a link may belong to a device that the kernel does not name, as for all hardware before Linux 5.14. */
export function isUnidentified({ parentDevice, kind, name }: Link): boolean {
  return parentDevice === undefined && (kind === undefined || hardwareKinds.includes(kind)) && name !== 'lo';
}
