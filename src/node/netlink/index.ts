export { type Address, isReachable } from './address.ts';
export {
  type AdSelect,
  adSelects,
  type BondMode,
  bondModes,
  type FailOverMac,
  failOverMacs,
  type LacpRate,
  lacpRates,
  type PrimaryReselect,
  primaryReselects,
  type XmitHashPolicy,
  xmitHashPolicies,
} from './bond.ts';
export { assertInterfaceName, isEthernetAddress, maxInterfaceNameBytes, parseHardwareAddress } from './checks.ts';
export {
  AddressFamily,
  type Cidr,
  canonicalCidr,
  formatCidr,
  formatIpAddress,
  isNetwork,
  isUnicast,
  isWithin,
  networkOf,
  parseCidr,
  parseIpAddress,
  quickCanonicalAddress,
} from './cidr.ts';
export { type EntryTable, type Neighbor, neighborTable, type Rule, ruleTable } from './entries.ts';
export { NetlinkError } from './errors.ts';
export {
  EthtoolConnection,
  type EthtoolGroup,
  type EthtoolState,
  type EthtoolValues,
  type LinkEthtool,
  type LinkTuning,
  othersIn,
} from './ethtool.ts';
export { kernelFeatures } from './ethtool-features.ts';
export { FunctionLinks } from './function-links.ts';
export { addressesOf, type HostConfig, readHostConfig, setHostConfig, unlessThere } from './host-config.ts';
export { KernelNetworks } from './kernel-networks.ts';
export type { Link, LinkChange, LinkFlag, NetnsReference, XdpMode } from './link.ts';
export type { LinkFinder, LinkReader, LinkSelector, LinkWriter } from './link-access.ts';
export {
  type LinkState,
  type LinkStateConnection,
  type RestoreFailure,
  readLinkState,
  restoreLinkState,
  scrubLink,
} from './link-state.ts';
export type { LinkTable } from './link-table.ts';
export { moveLink } from './move-link.ts';
export { decodeArpSender, encodeAnnouncement, encodeArpProbe } from './neighbour-frames.ts';
export { NetnsHandle, openInNetns } from './netns.ts';
export {
  findVf,
  type InterfaceAddresses,
  isUnidentified,
  type LinkFacts,
  maxReportedAddresses,
  type NetworkState,
  toNetworkState,
  type VfIdentity,
} from './network-state.ts';
export { NetworkWatch } from './network-watch.ts';
export { EtherType, PacketSocket } from './packet-socket.ts';
export type { QdiscPlace } from './qdisc.ts';
export { isRepresentor } from './representor.ts';
export {
  formatRoute,
  isDefaultRoute,
  leadsAsWanted,
  maxListedRoutes,
  type NewRoute,
  type Route,
  type RouteHop,
  type RouteId,
  type RouteScope,
  type RouteSpec,
  routeKey,
  scopeLink,
} from './route.ts';
export { type NewBond, type NewLink, type NewVeth, type NewVrf, RtnlConnection } from './rtnl.ts';
export {
  type InterfaceSysctls,
  interfaceSysctlPattern,
  readInterfaceSysctls,
  type SysctlOptions,
  writeInterfaceSysctls,
} from './sysctl.ts';
export type { LinkTraffic, TrafficCounters, VfTraffic } from './traffic.ts';
export type { AdminSettings, VfChange, VfInfo, VfInfoAccess } from './vf-settings.ts';
