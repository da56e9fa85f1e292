import type { Attachment, StoredDevice } from '../../state/index.ts';
import type { HostLinks, VfHost } from './host-link.ts';
import { readInterface } from './netlink.ts';
import type { PodLinks } from './pod-links.ts';
import { type AttachStrategy, type AttachTask, missing, type VfState } from './strategy.ts';

/** `attach: observe`: another component, such as Multus, moves the VF into the pod and back. */
export class ObserveAttach implements AttachStrategy {
  readonly #hostLinks: HostLinks;
  readonly #vfs: Pick<VfHost, 'adminInfo'>;

  constructor({ hostLinks, vfs }: { hostLinks: HostLinks; vfs: Pick<VfHost, 'adminInfo'> }) {
    this.#hostLinks = hostLinks;
    this.#vfs = vfs;
  }

  async attach({ device, place, pod, record }: AttachTask): Promise<VfState> {
    const state = await this.read(device, pod);
    if (state === undefined) {
      throw missing(device, `no component has moved it into ${place.netnsPath}, and attach is "observe"`);
    }
    record();
    return state;
  }

  async read(device: StoredDevice, pod: PodLinks): Promise<VfState | undefined> {
    return await readInterface(this.#vfs, device, pod);
  }

  /** The component that moved the VF moves it back after our hook, unless it or the runtime fails. */
  async leave(device: StoredDevice, attachment: Attachment, isAbandoned: boolean): Promise<boolean> {
    if (await this.#hostLinks.isBack(device)) return true;
    if (isAbandoned) await this.#hostLinks.takeBack(device, attachment);
    return isAbandoned;
  }
}
