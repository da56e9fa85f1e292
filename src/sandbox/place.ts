import type { NetworkState } from '../netlink/index.ts';

/** The sandbox that a VF goes to. */
export interface SandboxPlace {
  podUid: string;
  sandboxId: string;
  netnsPath: string;
}

/** What is reported of a VF: of its interface, or what is known of it without one. */
export type VfState = Pick<NetworkState, 'hardwareAddress' | 'ips' | 'tentative'> &
  Partial<Pick<NetworkState, 'interfaceName' | 'mtuBytes'>>;
