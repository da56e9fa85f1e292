import type {
  AdSelect,
  BondMode,
  FailOverMac,
  LacpRate,
  Neighbor,
  PrimaryReselect,
  RouteHop,
  RouteScope,
  Rule,
  XmitHashPolicy,
} from '../../node/netlink/index.ts';
import type { DialectsConfig } from './dialects-config.ts';

/** Component that moves a VF into its pod: netdra (`netlink`), CNI plugins (`cni`), or another component (`observe`). */
export const attachModes = ['netlink', 'cni', 'observe'] as const;
export type AttachMode = (typeof attachModes)[number];

/** Settings of a VF that its PF enforces. */
export interface VfSettings {
  vlan?: number | undefined;
  qos?: number | undefined;
  vlanProto?: '802.1q' | '802.1ad' | undefined;
  spoofCheck?: boolean | undefined;
  trust?: boolean | undefined;
  linkState?: 'auto' | 'enable' | 'disable' | undefined;
  /** Guaranteed rate in Mbit/s. */
  minTxRate?: number | undefined;
  /** Maximum rate in Mbit/s. */
  maxTxRate?: number | undefined;
}

/** Largest packets, in bytes, that the kernel passes to the VF (GSO), or assembles from received ones (GRO). */
export interface OffloadSizes {
  gsoMaxBytes?: number | undefined;
  groMaxBytes?: number | undefined;
  gsoMaxBytesIpv4?: number | undefined;
  groMaxBytesIpv4?: number | undefined;
}

/** Settings of a VF that its driver applies, as ethtool shows them. */
export interface EthtoolConfig {
  /** Offloads, by their names in the kernel, such as `rx-gro`. */
  features?: Record<string, boolean> | undefined;
  privateFlags?: Record<string, boolean> | undefined;
  /** Lengths of the queues, in packets. */
  rings?: { rx?: number | undefined; tx?: number | undefined } | undefined;
  /** Numbers of queues. */
  channels?: { rx?: number | undefined; tx?: number | undefined; combined?: number | undefined } | undefined;
  coalescing?: CoalescingConfig | undefined;
}

/** Time or number of frames after which the VF interrupts; with `useAdaptive…`, its driver decides. */
export interface CoalescingConfig {
  rxUsecs?: number | undefined;
  txUsecs?: number | undefined;
  rxMaxFrames?: number | undefined;
  txMaxFrames?: number | undefined;
  useAdaptiveRx?: boolean | undefined;
  useAdaptiveTx?: boolean | undefined;
}

/** Owner and permissions of a VF's device files in containers. The runtime decides on absent fields. */
export interface DeviceFilesConfig {
  uid?: number | undefined;
  gid?: number | undefined;
  /** Permissions as octal digits, such as `0660`. */
  mode?: string | undefined;
}

/** The bond that a VF joins. */
export interface BondConfig {
  name: string;
  mode?: BondMode | undefined;
  /** Interval of link monitoring, ms. */
  miimon?: number | undefined;
  /** Interval of ARP probes, ms, in place of link monitoring. */
  arpInterval?: number | undefined;
  arpTargets?: string[] | undefined;
  failOverMac?: FailOverMac | undefined;
  /** Request whose VF the bond uses while that VF works. */
  primary?: string | undefined;
  primaryReselect?: PrimaryReselect | undefined;
  xmitHashPolicy?: XmitHashPolicy | undefined;
  lacpRate?: LacpRate | undefined;
  adSelect?: AdSelect | undefined;
}

export interface RouteConfig {
  destination: string;
  gateway?: string | undefined;
  nextHops?: RouteHop[] | undefined;
  onlink?: boolean | undefined;
  source?: string | undefined;
  scope?: RouteScope | undefined;
  table?: number | undefined;
  metric?: number | undefined;
}

/** NetworkAddressPool that assigns an address of each IP version, and the key that keeps them. */
export interface AddressPoolConfig {
  name?: string | undefined;
  /** Key of the addresses, unique in the claim's namespace. Absent: the pod of a StatefulSet keeps them. */
  key?: string | undefined;
}

/** VRF that an interface is in, together with other interfaces of its pod that name the same VRF. */
export interface VrfConfig {
  name: string;
  /** Routing table of the VRF, with the routes of its interfaces. */
  table: number;
}

/** Use of addresses and routes that routers of the network advertise. */
export interface SlaacConfig {
  /** Time that containers wait for the first address, s; 0: they do not wait. */
  waitSeconds: number;
  /** Whether the pod takes default routes from routers. */
  defaultRoute?: boolean | undefined;
}

/**
 * The merged settings of DeviceClass and claim for one device. An absent field leaves the VF unchanged. `vfConfigSchema` of
 * `driver/api` describes each field for users; the compiler checks that type and schema agree.
 */
export interface VfConfig {
  attach?: AttachMode | undefined;
  cni?: Record<string, unknown> | undefined;
  networkAttachmentDefinition?: { name: string; namespace?: string | undefined } | undefined;
  ipam?: Record<string, unknown> | undefined;
  driver?: string | undefined;
  vhost?: boolean | undefined;
  rdma?: boolean | undefined;
  deviceFiles?: DeviceFilesConfig | undefined;
  numa?: 'report' | 'require' | undefined;
  vf?: VfSettings | undefined;
  interfaceName?: string | undefined;
  /** MTU in bytes. */
  mtu?: number | undefined;
  macAddress?: string | undefined;
  addresses?: string[] | undefined;
  addressPool?: AddressPoolConfig | undefined;
  slaac?: SlaacConfig | undefined;
  routes?: RouteConfig[] | undefined;
  /** Rules for policy routing in the pod's network namespace. */
  rules?: Rule[] | undefined;
  vrf?: VrfConfig | undefined;
  neighbors?: Neighbor[] | undefined;
  sysctls?: Record<string, string | number> | undefined;
  allMulticast?: boolean | undefined;
  promiscuous?: boolean | undefined;
  offloadLimits?: OffloadSizes | undefined;
  ethtool?: EthtoolConfig | undefined;
  bond?: BondConfig | undefined;
  /** Whether a whole NIC keeps the addresses and routes of the host in the pod. */
  keepHostConfig?: boolean | undefined;
  dialects?: DialectsConfig | undefined;
}

/** Settings of an interface in a pod's network namespace, besides its MTU and addresses. */
export const interfaceSettings = [
  'routes',
  'rules',
  'vrf',
  'neighbors',
  'sysctls',
  'allMulticast',
  'promiscuous',
  'offloadLimits',
] as const satisfies readonly (keyof VfConfig)[];

/** Merges two configurations. Fields of `over` win; `vf`, `sysctls` and `addressPool` are merged entry by entry. */
export function mergeVfConfigs(base: VfConfig, over: VfConfig): VfConfig {
  const merged = { ...base, ...over };
  for (const field of ['vf', 'sysctls', 'addressPool'] as const) {
    const both = { ...base[field], ...over[field] };
    if (Object.keys(both).length > 0) Object.assign(merged, { [field]: both });
  }
  return merged;
}
