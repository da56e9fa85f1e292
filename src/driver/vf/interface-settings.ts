import type { InterfaceSysctls } from '../../node/netlink/index.ts';
import type { VfConfig } from '../model/index.ts';

/**
 * Sysctls of an interface in a pod, written before it is up. A link that enters a namespace gets the defaults of that
 * namespace, with which every host of the network can give the pod addresses and routes. docs/vfconfig.md lists the values,
 * docs/decisions/0045-the-claim-decides-not-the-network.md gives the reasons.
 */
export interface InterfaceSettings {
  /** Sysctls that follow from the claim's fields. A key that the kernel lacks is skipped: the kernel lacks its feature, too. */
  needed: InterfaceSysctls;
  /** Sysctls that claim or class request; they take precedence. */
  asked: InterfaceSysctls;
}

/** Sysctls that switch off router advertisements, autoconfiguration, and redirects. Only `slaac` switches the first two on. */
const closedToTheNetwork: InterfaceSysctls = {
  'net.ipv6.conf.IFNAME.accept_ra': 0,
  'net.ipv6.conf.IFNAME.autoconf': 0,
  'net.ipv6.conf.IFNAME.accept_redirects': 0,
};

/**
 * Sysctls that switch off forwarding. A new namespace copies the IPv4 settings of the node, which forwards packets: hosts of
 * the VF's network could send packets through the pod into its other networks. Source: kernel `devinet_init_net`,
 * `net.core.devconf_inherit_init_net`.
 */
const noRouter: InterfaceSysctls = { 'net.ipv4.conf.IFNAME.forwarding': 0 };

/**
 * Sysctls that switch off the kernel's announcements. netdra itself announces addresses, unless another host has them: see
 * `Announcements`. The kernel would announce all addresses when the link is set up.
 */
const announcedByNetdra: InterfaceSysctls = {
  'net.ipv4.conf.IFNAME.arp_notify': 0,
  'net.ipv6.conf.IFNAME.ndisc_notify': 0,
};

/**
 * Sysctls for a claim that requests addresses from routers. The value 2 also accepts advertisements while the pod forwards
 * packets.
 */
const openToRouters: InterfaceSysctls = { 'net.ipv6.conf.IFNAME.accept_ra': 2, 'net.ipv6.conf.IFNAME.autoconf': 1 };

const optimisticDad = 'net.ipv6.conf.IFNAME.optimistic_dad';

/**
 * Sysctls that switch on IPv6, which hardened hosts and some runtimes switch off for new interfaces. They allow addresses to
 * be used, as destinations and as sources, while the kernel looks for duplicates.
 */
const openToIpv6: InterfaceSysctls = {
  'net.ipv6.conf.IFNAME.disable_ipv6': 0,
  [optimisticDad]: 1,
  'net.ipv6.conf.IFNAME.use_optimistic': 1,
};

/** Fields of a claim that its sysctls depend on, with the routes of an IPAM plugin. */
export interface SettingsConfig extends Pick<VfConfig, 'addresses' | 'neighbors' | 'slaac' | 'sysctls'> {
  routes?: readonly { destination: string }[] | undefined;
}

export function interfaceSettings(config: SettingsConfig): InterfaceSettings {
  const { addresses = [], routes = [], neighbors = [], slaac, sysctls: asked = {} } = config;
  const hosts = [...routes.map(({ destination }) => destination), ...neighbors.map(({ address }) => address)];
  const isIpv6 = slaac !== undefined || [...addresses, ...hosts].some((each) => each.includes(':'));
  const all = Object.entries({
    ...(isIpv6 && openToIpv6),
    ...closedToTheNetwork,
    ...(slaac && openToRouters),
    ...(slaac && { 'net.ipv6.conf.IFNAME.accept_ra_defrtr': Number(slaac.defaultRoute ?? false) }),
    ...noRouter,
    ...announcedByNetdra,
  });
  return { needed: Object.fromEntries(all.filter(([key]) => !Object.hasOwn(asked, key))), asked };
}

/**
 * Returns how the kernel detects duplicates of an IPv6 address. Without optimistic detection it must not: addresses could not
 * be used for the first second or two, but containers have started by then.
 * @param skipped sysctls that the kernel lacks
 */
export function duplicateDetection(skipped: readonly string[]): 'none' | 'optimistic' {
  return skipped.includes(optimisticDad) ? 'none' : 'optimistic';
}
