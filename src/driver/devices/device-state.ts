import type { InventoryPolicy } from '../../node/inventory/index.ts';
import type { HungWrite } from '../../node/sriov/index.ts';
import type { ActiveCondition } from './condition-history.ts';
import type { PolicyOrigin } from './policy-file.ts';

/** Inputs, besides the node and the store, that determine the offered devices. Plain data that can be serialized. */
export interface DeviceState {
  /** The policy in force, if the driver has one. */
  policy?: InventoryPolicy;
  /** Origin of the policy. */
  policyOrigin?: PolicyOrigin;
  /** Reason why a newer policy is not in force. */
  policyFault?: string;
  /** Writes from which the kernel has not returned. */
  hungWrites: readonly HungWrite[];
  /** Whether the API server stores taints of devices; if not, devices that would have one are not offered. */
  keepsTaints: boolean;
  /** Faults of PCI functions. */
  conditions: readonly ActiveCondition[];
}
