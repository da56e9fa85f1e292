import type { InterfaceSysctls } from '../../node/netlink/index.ts';
import type { VfConfig } from '../model/index.ts';

/**
 * Kernel settings of an interface in a pod, applied before it is up. A link that enters a namespace gets the defaults of
 * that namespace, which let every host of its network give the pod addresses and routes. docs/vfconfig.md has the table,
 * docs/decisions/0045-the-claim-decides-not-the-network.md the reasons.
 */
export interface InterfaceSettings {
  /** Settings that the claim's fields imply. Keys that the kernel lacks are skipped, since it lacks their feature, too. */
  needed: InterfaceSysctls;
  /** Settings of claim or class, which take precedence. */
  asked: InterfaceSysctls;
}

/** Settings that switch off router advertisements, their prefixes, and redirects: only `slaac` asks for these. */
const closedToTheNetwork: InterfaceSysctls = {
  'net.ipv6.conf.IFNAME.accept_ra': 0,
  'net.ipv6.conf.IFNAME.autoconf': 0,
  'net.ipv6.conf.IFNAME.accept_redirects': 0,
};

/**
 * A new namespace copies the IPv4 settings of the node, which forwards packets: hosts of the VF's network could send packets
 * through the pod into its other networks. Source: kernel `devinet_init_net`, `net.core.devconf_inherit_init_net`.
 */
const noRouter: InterfaceSysctls = { 'net.ipv4.conf.IFNAME.forwarding': 0 };

/** netdra announces addresses itself, and none of another host: see `Announcements`. The kernel would announce all, when the link is up. */
const announcedByNetdra: InterfaceSysctls = {
  'net.ipv4.conf.IFNAME.arp_notify': 0,
  'net.ipv6.conf.IFNAME.ndisc_notify': 0,
};

/** The same settings for a claim that asks for addresses from routers; 2 also accepts advertisements while the pod forwards packets. */
const openToRouters: InterfaceSysctls = { 'net.ipv6.conf.IFNAME.accept_ra': 2, 'net.ipv6.conf.IFNAME.autoconf': 1 };

const optimisticDad = 'net.ipv6.conf.IFNAME.optimistic_dad';

/**
 * Settings for IPv6, which hardened hosts and some runtimes switch off for new interfaces. They allow addresses to be used,
 * as destinations and as sources, while the kernel looks for other hosts that have them.
 */
const openToIpv6: InterfaceSysctls = {
  'net.ipv6.conf.IFNAME.disable_ipv6': 0,
  [optimisticDad]: 1,
  'net.ipv6.conf.IFNAME.use_optimistic': 1,
};

/** What a claim's kernel settings follow from, with the additions of an IPAM plugin. */
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
 * Returns how the kernel detects duplicates of an IPv6 address. Without optimistic detection it does not: addresses could
 * not be used for the first second or two, and containers have started by then.
 * @param skipped settings that the kernel lacks
 */
export function duplicateDetection(skipped: readonly string[]): 'none' | 'optimistic' {
  return skipped.includes(optimisticDad) ? 'none' : 'optimistic';
}
