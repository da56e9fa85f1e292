/**
 * Fields that claims may not set unless the class or the operator opens them: they affect the node, or the network of others.
 * Kubernetes lets tenants write claims, but only administrators write classes.
 */
export const closedFields = [
  /** Binding a VF to vfio lets a program control the device's memory access, and removes the interface from the node. */
  'driver',
  'macAddress',
  /** Settings that the PF enforces: the VF's network, and what it may send there. */
  'vf.vlan',
  'vf.qos',
  'vf.vlanProto',
  'vf.spoofCheck',
  'vf.trust',
  'vf.linkState',
  'vf.minTxRate',
  'vf.maxTxRate',
  /** Modes other than active-backup depend on the switch: they send LACP frames, or use one MAC address on several ports. */
  'bond.mode',
  /** The files are not part of the VF: they open parts of the host's kernel that pods cannot reach otherwise. */
  'vhost',
  /** Access to device files for other users of a container than the runtime or the administrator chose. */
  'deviceFiles',
  /**
   * Addresses from a pool, which `limits.addressRanges` may exclude. With a key, they stay reserved after the claim's pod is
   * gone.
   */
  'addressPool.name',
  'addressPool.key',
  /** Addresses and routes from any host of the network, whatever the limits of the class. */
  'slaac',
  /** Choice of a routing table for all traffic of the pod, not only that of the VF. */
  'rules',
  /** Reception of traffic between other hosts of the VF's network. */
  'promiscuous',
  /** Addresses and routes of the node, perhaps its default route. */
  'keepHostConfig',
  /** Features and flags of some cards affect other VFs, and queues use memory of the kernel that counts for no pod. */
  'ethtool',
  /** Settings of the interface only, but the kubelet also refuses such sysctls to pods unless an administrator allows them. */
  'sysctls',
  /** Plugins that run as root on the node, with paths that their configuration chooses. */
  'cni',
  'ipam',
  'networkAttachmentDefinition',
  /** Definitions in other namespaces, even if `networkAttachmentDefinition` is open. */
  'networkAttachmentDefinition.namespace',
  /** Files on the host under names that other software trusts, and variables that images of other vendors expect. */
  'dialects',
] as const;
export type ClosedField = (typeof closedFields)[number];

/** Fields that claims may set unless their class sets them. */
const openFields = [
  'attach',
  'interfaceName',
  'mtu',
  'addresses',
  'routes',
  'vrf',
  'neighbors',
  'allMulticast',
  'offloadLimits',
  'rdma',
  'numa',
  'bond',
] as const;

/** All fields that a claim can set by itself. */
export const claimFields = [...openFields, ...closedFields] as const;
export type ClaimField = (typeof claimFields)[number];

/**
 * Returns the value of a field; `undefined` if the config does not set it. @param path names of the field and its parents,
 * with dots
 */
export function fieldOf(config: unknown, path: string): unknown {
  const own = (value: unknown, key: string): unknown =>
    typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined;
  return path.split('.').reduce(own, config);
}
