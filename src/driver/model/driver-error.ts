import { NetdraError } from '../../lib/errors.ts';

export type DriverErrorCode =
  /** The claim's opaque parameters are not a valid VFConfig. */
  | 'config-invalid'
  /** The claim sets a field to another value than its DeviceClass. */
  | 'config-conflict'
  /** Claims of this namespace may not use the DeviceClass. */
  | 'namespace-refused'
  /** The namespace's labels, which decide whether its claims may use the DeviceClass, cannot be read. */
  | 'namespace-unreadable'
  /** The allocation names a device that this node does not have. */
  | 'device-unknown'
  /** The allocation names a device in the pool of another node. */
  | 'pool-foreign'
  /** The allocation contains a configuration that neither the DeviceClass nor the claim has. */
  | 'allocation-mismatch'
  /** The operator does not allow these CNI plugins to run. */
  | 'cni-refused'
  /** The DeviceClass of the allocation cannot be read. */
  | 'class-unreadable'
  /** The claim has `numa: require`, but the driver's settings keep it from seeing which containers use the claim. */
  | 'numa-unenforceable'
  /** A device plugin manages the device, or may do so, or a program on the node has it open through vfio. */
  | 'device-given-out'
  /** Another claim has a device of the same IOMMU group in user space. */
  | 'device-in-use'
  /** The guarantees of other claims leave too little of the port's bandwidth. */
  | 'bandwidth-exceeded'
  /** Another claim has a bond in mode 802.3ad over the same port. */
  | 'port-taken'
  /** The claim is reserved for several pods, or for a PodGroup, but its devices can be in one pod only. */
  | 'claim-shared'
  /** The NetworkAttachmentDefinition that the config names is missing, may not be read, or has no configuration. */
  | 'network-attachment-unusable'
  /** The NetworkAddressPool that the config names is missing or invalid, or has no free address. */
  | 'address-pool-unusable'
  /**
   * The NetworkAddress or a lease of the claim's key belongs to another key, claim or owner, is being changed or deleted, or is
   * invalid.
   */
  | 'address-held';

/** Error that keeps a claim from being prepared or unprepared. */
export class DriverError extends NetdraError<DriverErrorCode> {}
