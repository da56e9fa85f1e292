import { type Address, isReachable } from './address.ts';
import type { Link } from './link.ts';
import { isRepresentor } from './representor.ts';

/** Limit of `networkData.ips` in resource.k8s.io/v1. */
export const maxReportedAddresses = 16;

/** What metadata reports about an interface besides its addresses. */
export interface LinkFacts {
  interfaceName: string;
  /** Lower case with colons; absent for links that have none. */
  hardwareAddress: string | undefined;
  mtuBytes: number;
  /** The link is up and has a carrier. */
  linkUp: boolean;
}

/** What metadata reports about the addresses of an interface. */
export interface InterfaceAddresses {
  /** Canonical CIDRs in code point order, at most 16: those of global scope, or the link-local ones if there are none. */
  ips: string[];
  /** Addresses that belong in `ips` are missing because duplicate address detection is still under way. */
  tentative: boolean;
  /** Those of `ips` for which duplicate address detection is under way; absent: none. */
  unconfirmed?: string[];
  /** Addresses that cannot be used, since another host has them; absent: none. At most 16. */
  duplicates?: string[];
}

/** What a device's metadata reports about its interface. */
export interface NetworkState extends LinkFacts, InterfaceAddresses {}

/** What the metadata reports about a link. @param addresses of all links, or only of this one */
export function toNetworkState(link: Link, addresses: readonly Address[]): NetworkState {
  const { index, name: interfaceName, hardwareAddress, mtuBytes, up, carrier } = link;
  const own = addresses.filter((address) => address.index === index);
  const [duplicates, valid] = [own.filter(({ dadFailed }) => dadFailed), own.filter(({ dadFailed }) => !dadFailed)];
  const global = valid.filter(({ scope }) => isReachable(scope));
  // Even if all global ones are tentative: reporting link-local ones meanwhile would only confuse.
  const chosen = global.length > 0 ? global : valid.filter(({ scope }) => scope === 'link');
  const usable = chosen.filter(({ tentative }) => !tentative);
  const unconfirmed = usable.filter(({ optimistic }) => optimistic === true);
  return {
    interfaceName,
    hardwareAddress,
    ips: cidrsOf(usable),
    tentative: chosen.some(({ tentative }) => tentative),
    ...(unconfirmed.length > 0 && { unconfirmed: cidrsOf(unconfirmed) }),
    ...(duplicates.length > 0 && { duplicates: cidrsOf(duplicates) }),
    mtuBytes,
    linkUp: up && carrier,
  };
}

function cidrsOf(addresses: readonly Address[]): string[] {
  return [...new Set(addresses.map(({ cidr }) => cidr))].sort().slice(0, maxReportedAddresses);
}

/** Kinds of links that hardware can have, too. */
const hardwareKinds = ['ipoib'];

/** Known facts about a VF, for finding its interface; the more, the better. */
export interface VfIdentity {
  /** With domain: `0000:3b:02.1`. */
  pciAddress?: string;
  /** Alias that was set when the link was created or moved. */
  alias?: string;
  /** Address of the interface when it was moved. Used only if exactly one link has it. */
  hardwareAddress?: string;
  /** The name that it probably has; looked at first, and never sufficient. */
  interfaceName?: string;
}

/** Byte strings of which the message of a VF's link contains at least one. */
export function searchBytesOf({ pciAddress, alias, hardwareAddress }: VfIdentity): Buffer[] {
  const address = hardwareAddress === undefined ? [] : [Buffer.from(hardwareAddress.replaceAll(':', ''), 'hex')];
  return [...[pciAddress, alias].filter((text) => text !== undefined).map((text) => Buffer.from(text)), ...address];
}

/**
 * Finds the VF's interface among the links of a namespace: by the bus address that the kernel reports (Linux 5.14+),
 * else by alias or address. A link that is known to be another device is never chosen, nor, for a
 * hardware VF, a link of a virtual kind: a pod can create one with the VF's address.
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

/** Whether a link may be that of a device which the kernel does not name: the case for hardware before Linux 5.14. */
export function isUnidentified({ parentDevice, kind, name }: Link): boolean {
  return parentDevice === undefined && (kind === undefined || hardwareKinds.includes(kind)) && name !== 'lo';
}
