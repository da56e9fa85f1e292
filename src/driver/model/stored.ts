import type { ClaimIdentity } from '../../framework/metadata/index.ts';
import type { FunctionCondition, NetworkDevice } from '../../node/inventory/index.ts';
import type { LinkState } from '../../node/netlink/index.ts';
import type { VfAccess, VfSnapshot } from '../../node/sriov/index.ts';
import type { VfConfig } from './vf-config.ts';

/** Identifies a pod sandbox. */
export interface SandboxIdentity {
  podUid: string;
  /** For messages, and for CNI plugins that ask the API server about the pod. */
  podNamespace: string;
  podName: string;
  sandboxId: string;
}

/** The pod sandbox that a VF is in. */
export interface SandboxPlace extends SandboxIdentity {
  netnsPath: string;
}

/** Where a VF is while it is not in the host's network namespace, and its earlier state. All of it ends with the attachment. */
export interface Attachment extends SandboxPlace {
  /**
   * Properties of the VF's interface on the host that differed from `before.link` when it was attached; all of them without such a
   * snapshot. Both together are restored on detach. Absent: it has no interface (DPDK), or another component moves it.
   */
  host?: Partial<LinkState>;
  /** The name that CNI plugins were given for an interface whose claim names none. */
  interfaceName?: string;
  /** Alias of the bond that is made for it in the pod, by which it is found again. */
  bond?: string;
}

/** A VF that is prepared for a claim. */
export interface StoredDevice {
  pciAddress: string;
  /** Of a VF; absent for a plain NIC. */
  pfAddress?: string;
  vfIndex?: number;
  pool: string;
  name: string;
  /** Full reference of the request. */
  request: string;
  config: VfConfig;
  /** The extended resource that the request was made for, by the scheduler. */
  extendedResource?: string;
  /** Containers that have another request for the same resource, too. */
  sharers?: readonly string[];
  /** The device as its slice had it when it was prepared, which stays so while its claim has it. */
  offered: NetworkDevice;
  /** Snapshot of the VF before its claim changed it from outside; absent if it did not. */
  before?: VfSnapshot;
  /** How its containers access it; absent until it is prepared. */
  access?: VfAccess;
  attachment?: Attachment;
  /** Its link state was `auto`, and is `disable` while the LACP partner of its PF is lost. */
  isDisabledForLacp?: true;
  /** Of an unrestored VF: its claim needed an interface, and it could have none. */
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
   * `preparing` and `unpreparing` are intents: the host may be in any state between before and after. `prepared`: the devices are
   * ready, the claim has a record, and sandboxes are served.
   */
  state: 'preparing' | 'prepared' | 'unpreparing';
  /** Identifies the allocation that it was prepared for. */
  allocation: string;
}

/** A VF without a claim that could not be restored yet, or that could not be used. */
export interface UnrestoredVf {
  device: StoredDevice;
  /** Why, for the operator. */
  reason: string;
}

/** Something that is, or was lately, wrong with a function of a card. Times are Unix times, ms. */
export interface StoredCondition extends FunctionCondition {
  /** Since when it is reported. Absent: it is over, and kept for its flaps. */
  sinceMs?: number;
  /** When it was seen to be over. Absent: it is not. */
  overMs?: number;
  /** How long it has to be over before that is reported. */
  holdMs: number;
}

/** Whether the VF has no interface: it is bound to vfio. Known once it is prepared. */
export function isUserSpace({ access }: { access?: VfAccess }): boolean {
  return access?.vfio !== undefined;
}
