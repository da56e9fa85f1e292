import type { LinkState, NetworkState } from '../../netlink/index.ts';
import type { Attachment, SandboxPlace, StoredDevice } from '../../state/index.ts';
import { SandboxError } from '../errors.ts';
import type { PodLinks } from './pod-links.ts';

/** The state of a VF for its metadata: that of its interface, or the known facts about a VF without one. */
export type VfState = Pick<NetworkState, 'hardwareAddress' | 'ips' | 'tentative'> &
  Partial<Pick<NetworkState, 'interfaceName' | 'mtuBytes' | 'linkUp'>> & {
    /** VLAN ID that the PF puts on the VF's frames; absent: untagged, or not known. */
    vlan?: number;
  };

/** A VF that is to be attached to a sandbox. */
export interface AttachTask {
  device: StoredDevice;
  place: SandboxPlace;
  pod: PodLinks;
  /** From an earlier attachment of the VF: the state that still has to be restored. */
  before?: LinkState;
  /** Stores where the VF is, with the state to restore. To be called before the host is changed. */
  record(host?: LinkState): void;
  signal: AbortSignal;
}

/** How VFs get into a pod and back, for one value of `attach` in the claim's configuration. */
export interface AttachStrategy {
  /**
   * Attaches and configures the VF as its claim asks, and reads its state. Idempotent.
   * @throws SandboxError `vf-missing`; NetlinkError, CniError, SriovError
   */
  attach(task: AttachTask): Promise<VfState>;
  /** The VF's state in the pod; `undefined` if it is not there. */
  read(device: StoredDevice, pod: PodLinks): Promise<VfState | undefined>;
  /**
   * Takes the VF out of the pod, wherever it is now. Idempotent. Afterwards it is in the host's network namespace, if this
   * strategy has moved it.
   */
  leave(device: StoredDevice, attachment: Attachment): Promise<void>;
}

export function missing(device: StoredDevice, reason: string): SandboxError {
  return new SandboxError('vf-missing', `device ${device.name} (${device.pciAddress}) cannot be attached: ${reason}`, {
    device: device.name,
    hint: 'netdra inventory lists the devices of the node',
  });
}
