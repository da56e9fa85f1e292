import type { VfHardware } from '../../node/sriov/index.ts';

/** Changes VFs from the host side, real or simulated ones: kernel driver, and the PF's settings. */
export type VfControl = Pick<VfHardware, 'access' | 'configure' | 'groupMembers' | 'restore' | 'snapshot'>;
