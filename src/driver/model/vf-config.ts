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

/** Component that moves a VF into its pod: netdra, the CNI plugins of the claim, or another one. */
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
  /** By their names in the kernel, such as `rx-gro`. */
  features?: Record<string, boolean> | undefined;
  privateFlags?: Record<string, boolean> | undefined;
  /** Lengths of a queue, in packets. */
  rings?: { rx?: number | undefined; tx?: number | undefined } | undefined;
  /** Numbers of queues. */
  channels?: { rx?: number | undefined; tx?: number | undefined; combined?: number | undefined } | undefined;
  coalescing?: CoalescingConfig | undefined;
}

/** When the VF interrupts: after microseconds, after frames, or as the driver finds best. */
export interface CoalescingConfig {
  rxUsecs?: number | undefined;
  txUsecs?: number | undefined;
  rxMaxFrames?: number | undefined;
  txMaxFrames?: number | undefined;
  useAdaptiveRx?: boolean | undefined;
  useAdaptiveTx?: boolean | undefined;
}

/** Owner and permissions of a VF's device files in containers. What is absent is left to the runtime. */
export interface DeviceFilesConfig {
  uid?: number | undefined;
  gid?: number | undefined;
  /** Octal digits, such as `0660`. */
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
  /** Request whose VF the bond uses while it works. */
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

/** The NetworkAddressPool that assigns an address of each IP version, and who keeps them. */
export interface AddressPoolConfig {
  name?: string | undefined;
  /** Unique in the claim's namespace. Absent: the pod of a StatefulSet keeps them. */
  key?: string | undefined;
}

/** The VRF that an interface is in, with other interfaces of its pod that name it. */
export interface VrfConfig {
  name: string;
  /** Routing table of its interfaces. */
  table: number;
}

/** Addresses and routes that routers of the network give the interface. */
export interface SlaacConfig {
  /** How long containers wait for the first address, s; 0: they do not wait. */
  waitSeconds: number;
  /** Whether the pod takes default routes from routers. */
  defaultRoute?: boolean | undefined;
}

/**
 * The merged settings of DeviceClass and claim for one device. An absent field leaves the VF unchanged. `vfConfigSchema` of
 * `driver/api` describes each field for users, and checks that the two agree.
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
  /** Policy routing of the pod's network namespace. */
  rules?: Rule[] | undefined;
  vrf?: VrfConfig | undefined;
  neighbors?: Neighbor[] | undefined;
  sysctls?: Record<string, string | number> | undefined;
  allMulticast?: boolean | undefined;
  promiscuous?: boolean | undefined;
  offloadLimits?: OffloadSizes | undefined;
  ethtool?: EthtoolConfig | undefined;
  bond?: BondConfig | undefined;
  /** Whether a whole NIC has the addresses and routes in the pod that the host has given it. */
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

/** Merges two configurations. Fields of `over` win, as do its entries of `vf`, `sysctls` and `addressPool`. */
export function mergeVfConfigs(base: VfConfig, over: VfConfig): VfConfig {
  const merged = { ...base, ...over };
  for (const field of ['vf', 'sysctls', 'addressPool'] as const) {
    const both = { ...base[field], ...over[field] };
    if (Object.keys(both).length > 0) Object.assign(merged, { [field]: both });
  }
  return merged;
}
