import type { StoredDevice } from '../state/index.ts';
import { readInterface } from './netlink.ts';
import type { PodLinks } from './pod-links.ts';
import { type AttachStrategy, type AttachTask, missing, type VfState } from './strategy.ts';
import type { VfHost } from './vf-links.ts';

/** `attach: observe`: another component, such as Multus, moves the VF into the pod and back. */
export class ObserveAttach implements AttachStrategy {
  readonly #vfs: Pick<VfHost, 'adminInfo'>;

  constructor({ vfs }: { vfs: Pick<VfHost, 'adminInfo'> }) {
    this.#vfs = vfs;
  }

  async attach({ device, place, pod, record }: AttachTask): Promise<VfState> {
    const state = await this.read(device, pod);
    if (state === undefined) {
      throw missing({ device, place }, `no component has moved it into ${place.netnsPath}, and attach is "observe"`);
    }
    record();
    return state;
  }

  async read(device: StoredDevice, pod: PodLinks): Promise<VfState | undefined> {
    return await readInterface(this.#vfs, device, pod);
  }

  async detach(): Promise<void> {
    // The component that moved the VF moves it back, after our hook. If it fails, reconciliation does (ObservedVfs).
  }
}
