import type { Attachment, StoredDevice } from '../state/index.ts';
import type { CniAttacher } from './cni-attacher.ts';
import { readInterface, withVlan } from './netlink.ts';
import type { PodLinks } from './pod-links.ts';
import { type AttachStrategy, type AttachTask, missing, type VfState } from './strategy.ts';
import type { VfHost, VfLinks } from './vf-links.ts';

/** `attach: cni`: the plugins of the claim's network move the VF, configure it, and move it back. */
export class CniAttach implements AttachStrategy {
  readonly #links: VfLinks;
  readonly #vfs: Pick<VfHost, 'adminInfo'>;
  readonly #cni: CniAttacher;

  constructor(options: { links: VfLinks; vfs: Pick<VfHost, 'adminInfo'>; cni: CniAttacher }) {
    this.#links = options.links;
    this.#vfs = options.vfs;
    this.#cni = options.cni;
  }

  async attach(task: AttachTask): Promise<VfState> {
    const { device, place, pod, signal } = task;
    const found = await pod.find(device);
    // Before it is configured from outside: a plugin may reset the VF's settings when it is deleted.
    if (found === undefined && device.attachment !== undefined) await this.#cni.removeLost(device, place, signal);
    const { hardwareAddress } = found ?? (await this.#links.snapshot(task));
    // Also for a VF that is in the pod: an ADD that was cut short is undone and repeated by the runner.
    await this.#cni.add(device, place, signal);
    pod.changed();
    pod.follow();
    const link = await pod.find(device, hardwareAddress);
    if (link !== undefined) return await withVlan(this.#vfs, device, await pod.stateOf(link));
    throw missing(task, `the CNI plugins of its claim have not moved it into ${place.netnsPath}`);
  }

  async read(device: StoredDevice, pod: PodLinks): Promise<VfState | undefined> {
    return await readInterface(this.#vfs, device, pod);
  }

  async detach(device: StoredDevice, attachment: Attachment): Promise<void> {
    await this.#cni.remove(device, attachment);
    await this.#links.detach(device, attachment);
  }
}
