import type { NetworkState, VfInfo } from '../../node/netlink/index.ts';
import type { Attachment, StoredDevice } from '../state/index.ts';
import type { CniAttacher } from './cni-attacher.ts';
import { configureLink } from './configure-link.ts';
import { pfSettingsOf } from './pf-settings.ts';
import type { PodLinks } from './pod-links.ts';
import type { AttachStrategy, AttachTask, VfState } from './strategy.ts';
import type { VfHost, VfLinks } from './vf-links.ts';

/** `attach: netlink`: the driver moves the VF and configures it; an IPAM plugin may give it addresses. */
export class NetlinkAttach implements AttachStrategy {
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
    const { config } = device;
    // An attachment is stored before the VF is moved: without one the VF is not in the pod.
    const found = device.attachment === undefined ? undefined : await pod.find(device);
    const link = found ?? (await this.#links.attach(await this.#links.snapshot(task), task));
    const { addresses, routes } = await this.#cni.addresses(device, place, signal);
    await configureLink(pod.namespace, link, {
      ...config,
      addresses: [...(config.addresses ?? []), ...addresses],
      routes: [...(config.routes ?? []), ...routes],
    });
    pod.follow();
    return await withVlan(this.#vfs, device, await pod.stateAfterChange(device, link));
  }

  async read(device: StoredDevice, pod: PodLinks): Promise<VfState | undefined> {
    return await readInterface(this.#vfs, device, pod);
  }

  async detach(device: StoredDevice, attachment: Attachment): Promise<void> {
    await this.#cni.remove(device, attachment);
    await this.#links.detach(device, attachment);
  }
}

/** The state of a VF that was attached with an interface; `undefined` if it has left the pod. */
export async function readInterface(
  vfs: Pick<VfHost, 'adminInfo'>,
  device: StoredDevice,
  pod: PodLinks,
): Promise<VfState | undefined> {
  pod.follow();
  const link = await pod.findAttached(device);
  return link && (await withVlan(vfs, device, await pod.stateOf(link)));
}

export async function withVlan(
  vfs: Pick<VfHost, 'adminInfo'>,
  device: StoredDevice,
  state: NetworkState,
): Promise<VfState> {
  return { ...state, ...vlanOf(await pfSettingsOf(vfs, device, ['vlan'])) };
}

export function vlanOf(info: Pick<VfInfo, 'vlan'> | undefined): Pick<VfState, 'vlan'> {
  return info?.vlan === undefined ? {} : { vlan: info.vlan.id };
}
