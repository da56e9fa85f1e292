import type { ClaimIdentity, DeviceKey } from '../../framework/metadata/index.ts';
import type { FunctionCondition, NetworkDevice } from '../../node/inventory/index.ts';
import type { LinkState } from '../../node/netlink/index.ts';
import type { VfAccess, VfSnapshot } from '../../node/sriov/index.ts';
import type { VfConfig } from './vf-config.ts';

/** Identity of a pod sandbox. */
export interface SandboxIdentity {
  podUid: string;
  /** Namespace of the pod. It is needed for messages, and for CNI plugins that read the pod from the API server. */
  podNamespace: string;
  podName: string;
  sandboxId: string;
}

/** The pod sandbox that a VF is in. */
export interface SandboxPlace extends SandboxIdentity {
  netnsPath: string;
}

/** A link that netdra creates for a claim in its pod. */
export interface CreatedLink {
  /** Kind of link, as the kernel names it, such as `bond`. */
  kind: string;
  /** Alias by which netdra finds the link again after a restart. No link that the pod itself creates has it. */
  alias: string;
}

/** Sandbox that a VF is attached to, and the earlier state of the VF on the host. */
export interface Attachment extends SandboxPlace {
  /**
   * Properties of the VF's interface on the host that differed from `before.link` when it was attached; all properties if
   * there is no such snapshot. Detaching restores both. Absent: the VF has no interface (DPDK), or another component moves
   * it.
   */
  host?: Partial<LinkState>;
  /** Interface name for CNI plugins if the claim sets none: a name chosen for `attach: cni`, or the name on the host. */
  interfaceName?: string;
  /** Link that the strategy creates in the pod, and deletes when the device is detached. */
  created?: CreatedLink;
  /**
   * Set once the interface in the pod is configured, for a request with several devices. From then on the interface belongs
   * to the pod, even while the metadata of the request is withdrawn because another device is missing.
   */
  isConfigured?: true;
  /** Set when the VF leaves the sandbox, if its claim was served there before, so that containers may be running. */
  wasServed?: true;
}

/** A VF that is prepared for a claim, with the key from its allocation result. */
export interface StoredDevice extends DeviceKey {
  pciAddress: string;
  /** PCI address of the PF; absent for a plain NIC. */
  pfAddress?: string;
  vfIndex?: number;
  /** Full reference of the request, with the subrequest if there is one. */
  request: string;
  config: VfConfig;
  /** Whether the claim, not its class, has set `attach`; absent if neither has. */
  isAttachOfClaim?: boolean;
  /** Extended resource for which the scheduler made the request. */
  extendedResource?: string;
  /** Containers that have several requests for the same extended resource. */
  sharers?: readonly string[];
  /** The device as it was offered when it was prepared. It stays the same while its claim has it. */
  offered: NetworkDevice;
  /** State of the VF before its claim changed it on the host; absent until the snapshot is taken. */
  before?: VfSnapshot;
  /** Device files and drivers through which containers access the device; absent until they are prepared. */
  access?: VfAccess;
  attachment?: Attachment;
  /** Set while netdra has changed the link state `auto` to `disable`, since the PF has lost its LACP partner. */
  isDisabledForLacp?: true;
  /** Set on an unrestored VF that could not get the interface that its claim needed. */
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
   * `preparing` and `unpreparing` are intents: the host may be anywhere between its old and its new state. `prepared`: the
   * devices are ready, the claim has a record, and sandboxes are served.
   */
  state: 'preparing' | 'prepared' | 'unpreparing';
  /** Fingerprint of the allocation that the claim was prepared for. */
  allocation: string;
}

/** A VF that no claim gets, since it could not be restored or given an interface. */
export interface UnrestoredVf {
  device: StoredDevice;
  /** Reason, as text for the operator. */
  reason: string;
}

/** A present or recent condition of a card's function. Times are Unix times, ms. */
export interface StoredCondition extends FunctionCondition {
  /** Time since which the condition is reported. Absent: the condition has ended, and the entry remembers its flaps. */
  sinceMs?: number;
  /** Time at which the fault was first seen to be over. Absent: the fault persists. */
  overMs?: number;
  /** How long the fault must be over before the end of the condition is reported, ms. */
  holdMs: number;
}

/**
 * Returns the name of the interface that the device shares with other devices of its claim: the name of their bond.
 * `undefined` if the device is in no bond.
 */
export function groupOf({ config }: Pick<StoredDevice, 'config'>): string | undefined {
  return config.bond?.name;
}

/** Returns whether the VF is bound to vfio and so has no interface. The answer is valid once the VF is prepared. */
export function isUserSpace({ access }: { access?: VfAccess }): boolean {
  return access?.vfio !== undefined;
}

/** Returns whether a VF of the claim has left a sandbox in which the claim was served before. */
export function wasServedIn({ devices }: StoredClaim, sandboxId: string): boolean {
  return devices.some(({ attachment }) => attachment?.sandboxId === sandboxId && attachment.wasServed === true);
}
