/**
 * Fields that claims may not set unless the class or the operator opens them: they affect the node, or the network of
 * others. The API decides who may write a claim; only administrators may write a class.
 */
export const closedFields = [
  /** vfio lets a program control the device's memory access, and removes the interface from the node. */
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
  /** Modes other than active-backup need the switch's cooperation: they send LACP frames, or one MAC address by several ports. */
  'bond.mode',
  /** Not part of the VF: opens parts of the host's kernel that pods cannot reach otherwise. */
  'vhost',
  /** Opens the device files to other users of a container than those that the runtime or the administrator chose. */
  'deviceFiles',
  /** The claim gets addresses that `limits.addressRanges` may exclude; with a key, they stay reserved after its pod is gone. */
  'addressPool.name',
  'addressPool.key',
  /** Every host of the network can give the pod addresses and routes, whatever the limits of the class. */
  'slaac',
  /** They choose a routing table for all traffic of the pod, not only that of the VF. */
  'rules',
  /** The VF receives traffic between others in its network. */
  'promiscuous',
  /** Addresses and routes of the node, perhaps its default route. */
  'keepHostConfig',
  /** Features and flags of some cards affect other VFs, and queues use memory of the kernel that counts for no pod. */
  'ethtool',
  /** They only affect the interface, but the kubelet refuses them to pods without the administrator's consent. */
  'sysctls',
  /** Plugins run as root on the node, with paths that their configuration chooses. */
  'cni',
  'ipam',
  'networkAttachmentDefinition',
  /** Definitions in other namespaces, even if `networkAttachmentDefinition` is open. */
  'networkAttachmentDefinition.namespace',
  /** Files on the host under names that other software trusts, and variables that other images expect. */
  'dialects',
] as const;
export type ClosedField = (typeof closedFields)[number];

/** Fields that claims may set where their class does not. */
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

/** @param path of a field, with dots @returns its value; `undefined` where the config does not set it */
export function fieldOf(config: unknown, path: string): unknown {
  const own = (value: unknown, key: string): unknown =>
    typeof value === 'object' && value !== null && Object.hasOwn(value, key) ? Reflect.get(value, key) : undefined;
  return path.split('.').reduce(own, config);
}
