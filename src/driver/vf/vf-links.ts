import { defined } from '../../lib/defined.ts';
import {
  type Link,
  type LinkState,
  moveLink,
  type RestoreFailure,
  readLinkState,
  restoreLinkState,
  scrubLink,
} from '../../node/netlink/index.ts';
import { SriovError } from '../../node/sriov/index.ts';
import type { Attachment, CreatedLink, StoredDevice } from '../model/index.ts';
import { deleteCreated } from './created-links.ts';
import { linkOnHost } from './host-link.ts';
import type { HostVfs } from './host-vfs.ts';
import { type Networks, netnsDir } from './networks.ts';
import { findOn, type LinkKey, PodLinks } from './pod-links.ts';
import { type AttachTask, missingError, orNameTaken } from './strategy.ts';

/** Part of the node's VFs that attaching uses. */
export type VfHost = Pick<HostVfs, 'linkKey' | 'adminInfo' | 'rdmaDevice' | 'ensureLink' | 'recreate' | 'isUnbound'>;

type DetachedFrom = Pick<Attachment, 'netnsPath' | 'created'>;

/** The interfaces of VFs: attaches them to pods, detaches them, and restores them on the host. */
export class VfLinks {
  readonly #networks: Networks;
  readonly #vfs: VfHost;
  readonly #keyOf: LinkKey;

  constructor({ networks, vfs }: { networks: Networks; vfs: VfHost }) {
    this.#networks = networks;
    this.#vfs = vfs;
    this.#keyOf = (pciAddress) => vfs.linkKey(pciAddress);
  }

  /**
   * Stores the state of the VF on the host before it is attached. A VF that was attached before and has left the pod returns
   * as the pod or a reset has left it: it is restored as far as possible, and configured on the host again.
   * @throws SandboxError `vf-missing`; NetlinkError, also if a VF that has left the pod cannot be read; SriovError
   */
  async snapshot(task: AttachTask): Promise<Link> {
    const { device, before, record, reconfigure } = task;
    const { connection, ethtool } = this.#networks.host;
    const wasAttached = device.attachment !== undefined;
    const found = await this.#ensure(task, wasAttached ? 0 : undefined);
    // A VF that another kernel driver has is in use. A VF without a driver was left by a reset, or by a failed attempt to
    // bind it.
    const isBack = (wasAttached && (await this.isOnHost(device))) || (await this.#vfs.isUnbound(device.pciAddress));
    if (isBack) {
      const failures = before === undefined ? [] : await this.restore(device, before);
      const unread = failures.find(({ property }) => property === 'link');
      // If the link cannot be read, nothing is restored. A single property that cannot be restored is tried again, or
      // reported, when the VF is detached.
      if (unread !== undefined) throw unread.error;
      await reconfigure();
    }
    const link = (isBack ? undefined : found) ?? (await findOn(connection, device, this.#keyOf));
    if (link === undefined) throw missingError(task, "the device has no interface in the host's network namespace");
    record(before ?? (await readLinkState(connection, link.index, ethtool)));
    return link;
  }

  /**
   * Returns the VF's link on the host. @param withinMs how long to wait for it, ms: a VF that has left its pod may be away
   * for long, and is looked for again later
   */
  async #ensure(task: AttachTask, withinMs?: number): Promise<Link | undefined> {
    try {
      return await this.#vfs.ensureLink(task.device.pciAddress, withinMs);
    } catch (error) {
      if (error instanceof SriovError && error.code === 'vf-missing') throw missingError(task, undefined, error);
      throw error;
    }
  }

  /**
   * Moves the VF into the pod. It gets the name from its claim, or else its stored one. @throws SandboxError
   * `interface-name-taken`
   */
  async attach(link: Link, task: AttachTask): Promise<Link> {
    const { device, pod } = task;
    const { connection, netns } = pod.namespace;
    const name = device.config.interfaceName ?? linkOnHost(device)?.name ?? link.name;
    const move = moveLink(this.#networks.host.connection, link, { connection, netns }, { name });
    const moved = await orNameTaken(task, name, move);
    pod.changed();
    return moved;
  }

  /**
   * Gives a VF in the pod the name from its claim if an earlier attempt only moved it. The kernel moves a link before it
   * renames it, and another link may take the name in between. Such a VF is down and still has its name on the host. Any
   * other name was chosen by the pod and stays.
   * @throws SandboxError `interface-name-taken`
   */
  async rename(link: Link, task: AttachTask): Promise<Link> {
    const { device, pod } = task;
    const name = device.config.interfaceName ?? link.name;
    const isOnlyMoved = !link.up && link.name === linkOnHost(device)?.name;
    if (!isOnlyMoved || link.name === name) return link;
    await orNameTaken(task, name, pod.namespace.connection.setLink(link.index, { name }));
    pod.changed();
    return { ...link, name };
  }

  /**
   * Moves the VF to the host, after deleting the link that was created for it. If the pod's namespace is gone, the kernel has
   * already returned the VF. If the VF cannot be moved, which a process in the pod can cause, its interface is recreated.
   */
  async detach(device: StoredDevice, attachment: DetachedFrom): Promise<void> {
    const refused = await this.#move(device, attachment).catch((error: unknown) => ({ error }));
    try {
      await this.#vfs.recreate(device.pciAddress);
    } catch (error) {
      throw refused === undefined ? error : refused.error;
    }
  }

  /** Deletes a link that netdra created in a pod. Without the namespace, the link is gone, too. @throws NetlinkError */
  async deleteCreated(netnsPath: string, created: CreatedLink): Promise<void> {
    using namespace = this.#networks.open(netnsPath);
    if (namespace !== undefined && !namespace.isHost) await deleteCreated(namespace.connection, created);
  }

  async isOnHost(device: StoredDevice): Promise<boolean> {
    return (await findOn(this.#networks.host.connection, device, this.#keyOf)) !== undefined;
  }

  /** Detaches a VF without a stored attachment from the sandbox that it is in. */
  async detachLost(device: StoredDevice): Promise<void> {
    const netnsPath = await this.#locate(device);
    await (netnsPath === undefined ? this.#vfs.recreate(device.pciAddress) : this.detach(device, { netnsPath }));
  }

  /**
   * Searches the namespaces of all sandboxes for a VF. @returns the path of its namespace
   * @throws SandboxError, NetlinkError if no namespace has the VF and one of them cannot be searched. A pod can cause such an
   * error, which must not hide the VFs of other pods
   */
  async #locate(device: StoredDevice): Promise<string | undefined> {
    const errors: unknown[] = [];
    for (const path of this.#networks.list(netnsDir)) {
      try {
        using namespace = this.#networks.open(path);
        if (namespace === undefined || namespace.isHost) continue;
        if ((await new PodLinks(namespace, this.#keyOf).find(device)) !== undefined) return path;
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
    return undefined;
  }

  /** Moves the VF to the host under its old name, so that a name that the pod has chosen never appears on the host. */
  async #move(device: StoredDevice, { netnsPath, created }: DetachedFrom): Promise<undefined> {
    using namespace = this.#networks.open(netnsPath);
    if (namespace === undefined || namespace.isHost) return;
    // A failure is ignored: if it matters, the move fails, too. The move also frees a member of a bond.
    if (created !== undefined) await deleteCreated(namespace.connection, created).catch(() => undefined);
    const hostName = linkOnHost(device)?.name;
    const name = device.config.interfaceName ?? hostName;
    const link = await new PodLinks(namespace, this.#keyOf).findOnce(device, name);
    if (link === undefined) return;
    await scrubLink(namespace.connection, link.index);
    await moveLink(namespace.connection, link, this.#networks.host, defined({ name: hostName }), {
      acceptOtherName: true,
    });
  }

  /** Restores the VF's interface. @returns the properties that could not be restored */
  async restore(device: StoredDevice, before: LinkState): Promise<RestoreFailure[]> {
    const { connection, ethtool } = this.#networks.host;
    const link = await findOn(connection, device, this.#keyOf);
    // The VF was bound to vfio in the meantime, or disabled.
    if (link === undefined) return [];
    return await restoreLinkState(connection, link.index, before, ethtool);
  }
}
