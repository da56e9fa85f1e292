import type { ClaimIdentity, DeviceKey } from '../../framework/metadata/index.ts';
import type { FunctionCondition, NetworkDevice } from '../../node/inventory/index.ts';
import type { LinkState } from '../../node/netlink/index.ts';
import type { VfAccess, VfSnapshot } from '../../node/sriov/index.ts';
import type { VfConfig } from './vf-config.ts';

/** Identifies a pod sandbox. */
export interface SandboxIdentity {
  podUid: string;
  /** Namespace of the pod, for messages, and for CNI plugins that ask the API server about the pod. */
  podNamespace: string;
  podName: string;
  sandboxId: string;
}

/** The pod sandbox that a VF is in. */
export interface SandboxPlace extends SandboxIdentity {
  netnsPath: string;
}

/** A link that is made for a claim in its pod. */
export interface CreatedLink {
  /** As the kernel names it, such as `bond`. */
  kind: string;
  /** By which it is found again after a restart, and which no link of the pod's own has. */
  alias: string;
}

/** Place of a VF outside the host's network namespace, and its earlier state. Ends with the attachment. */
export interface Attachment extends SandboxPlace {
  /**
   * Properties of the VF's interface on the host that differed from `before.link` when it was attached; all of them without
   * such a snapshot. Detaching restores both. Absent: it has no interface (DPDK), or another component moves it.
   */
  host?: Partial<LinkState>;
  /** Name given to CNI plugins for an interface whose claim names none: chosen for `attach: cni`, or that of the host. */
  interfaceName?: string;
  /** The link that its strategy creates in the pod, and deletes when the device is detached. */
  created?: CreatedLink;
  /**
   * Set on one of several devices of a request once its interface in the pod is configured. The interface is the pod's from then
   * on, although the metadata of the request is withdrawn while another device is not there.
   */
  isConfigured?: true;
}

/** A VF that is prepared for a claim, with the key from its allocation result. */
export interface StoredDevice extends DeviceKey {
  pciAddress: string;
  /** PCI address of the PF; absent for a plain NIC. */
  pfAddress?: string;
  vfIndex?: number;
  /** Full reference of the request. */
  request: string;
  config: VfConfig;
  /** Whether the claim, not its class, has chosen who attaches the device; absent if neither has. */
  isAttachOfClaim?: boolean;
  /** Extended resource for which the scheduler made the request. */
  extendedResource?: string;
  /** Containers that have another request for the same resource, too. */
  sharers?: readonly string[];
  /** The device in its slice at prepare, which stays the same while its claim has it. */
  offered: NetworkDevice;
  /** Snapshot of the VF before its claim changed it from outside; absent if it did not. */
  before?: VfSnapshot;
  /** Access for its containers; absent until it is prepared. */
  access?: VfAccess;
  attachment?: Attachment;
  /** Set while the link state `auto` is `disable`, since the PF has lost its LACP partner. */
  isDisabledForLacp?: true;
  /** Set on an unrestored VF that could not have the interface that its claim needed. */
  lacksInterface?: true;
}

/** A claim, the pods that it is prepared for, and its devices. */
export interface ClaimDevices {
  identity: ClaimIdentity;
  podUids: string[];
  devices: StoredDevice[];
}

export interface StoredClaim extends ClaimDevices {
  /**
   * `preparing` and `unpreparing` are intents: the host may be in any state between before and after. `prepared`: the
   * devices are ready, the claim has a record, and sandboxes are served.
   */
  state: 'preparing' | 'prepared' | 'unpreparing';
  /** Identifies the allocation that the claim was prepared for. */
  allocation: string;
}

/** An unclaimed VF that could not be restored yet, or that could not be used. */
export interface UnrestoredVf {
  device: StoredDevice;
  /** Reason, for the operator. */
  reason: string;
}

/** A present or recent condition of a card's function. Times are Unix times, ms. */
export interface StoredCondition extends FunctionCondition {
  /** Time since which it is reported. Absent: it is over, and kept for its flaps. */
  sinceMs?: number;
  /** Time at which it was seen to be over. Absent: it is not over. */
  overMs?: number;
  /** How long it must be over before its end is reported. */
  holdMs: number;
}

/**
 * Returns the name of the interface that a device has in its pod together with others of its claim: that of their bond. `undefined`:
 * it is in no group.
 */
export function groupOf({ config }: Pick<StoredDevice, 'config'>): string | undefined {
  return config.bond?.name;
}

/** Returns whether the VF is bound to vfio, and so has no interface. Known once it is prepared. */
export function isUserSpace({ access }: { access?: VfAccess }): boolean {
  return access?.vfio !== undefined;
}
