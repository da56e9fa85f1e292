export { type Address, type AddressScope, isReachable } from './address.ts';
export { assertInterfaceName, isEthernetAddress, maxInterfaceNameBytes, parseHardwareAddress } from './checks.ts';
export {
  AddressFamily,
  bitsOf,
  type Cidr,
  formatCidr,
  isNetwork,
  isUnicast,
  isWithin,
  networkOf,
  parseCidr,
  parseIpAddress,
} from './cidr.ts';
export { NetlinkError, type NetlinkErrorCode, type NetlinkErrorDetails } from './errors.ts';
export {
  EthtoolConnection,
  type EthtoolGroup,
  type EthtoolState,
  type EthtoolValues,
  type LinkEthtool,
} from './ethtool.ts';
export type {
  Link,
  LinkChange,
  LinkFlag,
  LinkMode,
  NetnsReference,
  OffloadLimits,
  OperState,
  XdpMode,
} from './link.ts';
export {
  type LinkState,
  type LinkStateConnection,
  type RestoreFailure,
  readLinkState,
  restoreLinkState,
  scrubLink,
} from './link-state.ts';
export { type MoveOptions, type MoveTarget, moveLink } from './move-link.ts';
export { NetnsHandle, openInNetns } from './netns.ts';
export {
  findVf,
  isUnidentified,
  maxReportedAddresses,
  type NetworkState,
  readNetworkState,
  toNetworkState,
  type VfIdentity,
} from './network-state.ts';
export { NetworkWatch } from './network-watch.ts';
export type { QdiscPlace } from './qdisc.ts';
export { isDefaultRoute, type NewRoute, type NextHop, type Route } from './route.ts';
export { type LinkSelector, type LinkTable, type NewLink, type NewVeth, RtnlConnection } from './rtnl.ts';
export { type InterfaceSysctls, interfaceSysctlPattern, writeInterfaceSysctls } from './sysctl.ts';
export type { VfChange } from './vf-change.ts';
export type { VfInfo } from './vf-info.ts';
