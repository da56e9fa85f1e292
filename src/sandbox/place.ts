import type { PodSandbox } from '../../nri/index.ts';
import type { StoredDevice } from '../driver/index.ts';
import type { NetworkState } from '../netlink/index.ts';

/** The sandbox that a VF goes to. */
export interface SandboxPlace {
  podUid: string;
  /** For CNI plugins that ask the API server about the pod; absent for what was stored without them. */
  podNamespace?: string;
  podName?: string;
  sandboxId: string;
  netnsPath: string;
}

/** What is reported of a VF: of its interface, or what is known of it without one. */
export type VfState = Pick<NetworkState, 'hardwareAddress' | 'ips' | 'tentative'> &
  Partial<Pick<NetworkState, 'interfaceName' | 'mtuBytes' | 'linkUp'>> & {
    /** Of the tag that the PF puts on the VF's frames; absent: none, or not known. */
    vlan?: number;
  };

/** Whether the hook's work is done for a device in this very sandbox. */
export function isServed(device: StoredDevice, pod: PodSandbox): boolean {
  return device.attachment?.sandboxId === pod.id && device.networkData !== undefined;
}
