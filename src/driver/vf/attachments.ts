import { formatDeviceKey, isSameDevice, type NetworkDeviceData } from '../../framework/metadata/index.ts';
import type { Clock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import type { Logger } from '../../lib/logger.ts';
import {
  type Attachment,
  groupOf,
  isUserSpace,
  SandboxError,
  type SandboxPlace,
  type StoredDevice,
} from '../model/index.ts';
import type { Store } from '../state/index.ts';
import { Announcements } from './announcements.ts';
import type { CniAttacher } from './cni-attacher.ts';
import { changesOf, linkOnHost } from './host-link.ts';
import type { NetworkNamespace, Networks } from './networks.ts';
import { PodLinks } from './pod-links.ts';
import { createStrategies, type Strategies } from './strategies.ts';
import { type AttachStrategy, nameTakenError, podOf, type VfState } from './strategy.ts';
import { type VfHost, VfLinks } from './vf-links.ts';

/** Time limit for one attachment, ms. A CNI plugin that hangs is killed, and called again later. */
const attachBudgetMs = 60_000;
/**
 * Maximum number of interface names that are tried, more than CNI plugins use in a pod: a process in the pod can take any
 * number of names.
 */
const mostNames = 100;

export interface AttachmentsOptions {
  networks: Networks;
  vfs: VfHost;
  cni: CniAttacher;
  store: Pick<Store, 'claimsOfPod' | 'setAttachments'>;
  clock: Clock;
  logger: Logger;
  /** Called when other hosts begin or cease to have IPv4 addresses of a pod's VFs: the VFs must be read again. */
  onConflict: (podUid: string) => void;
}

/**
 * Attaches VFs to sandboxes and detaches them. Stores the sandbox of a VF before the host is changed. Every method can be
 * repeated, and must be called with the claim's lock held.
 */
export class Attachments {
  readonly #options: AttachmentsOptions;
  readonly #links: VfLinks;
  readonly #strategies: Strategies;

  constructor(options: AttachmentsOptions) {
    this.#options = options;
    const { networks, vfs, clock, logger, onConflict } = options;
    this.#links = new VfLinks({ networks, vfs });
    const announcements = new Announcements({
      networks,
      clock,
      logger,
      onConflict: ({ attachment }) => attachment && onConflict(attachment.podUid),
    });
    this.#strategies = createStrategies({ ...options, links: this.#links, announcements });
  }

  /** Returns the links of a pod, for one pass over its VFs. @param follow see {@link PodLinks} */
  podLinks(namespace: NetworkNamespace, follow?: () => void): PodLinks {
    return new PodLinks(namespace, (pciAddress) => this.#options.vfs.linkKey(pciAddress), follow);
  }

  /**
   * Attaches a VF, or completes an attachment that was cut short. A VF that is still in another sandbox of the same pod is
   * detached from there first.
   * @param device copy of the stored device; its attachment is changed as well
   * @param reconfigure configures the VF on the host; called if the VF was attached before and is attached again
   * @throws SandboxError `vf-missing`, `vf-busy`, `vf-unknown`, `interface-name-taken`; NetlinkError, CniError, SriovError
   */
  async attach(
    claimUid: string,
    device: StoredDevice,
    place: SandboxPlace,
    pod: PodLinks,
    signal: AbortSignal,
    reconfigure: () => Promise<void> = async () => undefined,
  ): Promise<VfState> {
    using deadline = this.#options.clock.deadline(attachBudgetMs, signal);
    const old = device.attachment;
    if (old !== undefined && old.sandboxId !== place.sandboxId) await this.#detachFromOther(device, old, place);
    const { attach, ipam, interfaceName: claimed } = device.config;
    const chosen = attach === 'cni' ? await this.#cniName(device, place, pod) : undefined;
    const strategy = this.#strategyOf(device);
    const created = strategy.creates?.(claimUid, device);
    return await strategy.attach({
      device,
      place,
      pod,
      reconfigure,
      signal: deadline.signal,
      ...defined({ before: old && linkOnHost(device), created }),
      record: (link) => {
        const wasServed = old?.sandboxId === place.sandboxId ? old.wasServed : undefined;
        const host = link && changesOf(link, device);
        const kept = ipam === undefined || claimed !== undefined ? undefined : link?.name;
        const interfaceName = chosen ?? kept;
        this.#record(claimUid, device, { ...place, ...defined({ host, interfaceName, created, wasServed }) });
      },
    });
  }

  /**
   * Stores whether the interface of an attached VF is configured. A VF that has left the pod, or is being detached, is not.
   * @param device as for `detach`
   */
  setConfigured(claimUid: string, device: StoredDevice, isConfigured: boolean): void {
    // A VF in user space has no interface, and its addresses are known only from its metadata.
    if (device.attachment === undefined || isUserSpace(device)) return;
    const { isConfigured: before = false, ...attachment } = device.attachment;
    if (before === isConfigured) return;
    this.#record(claimUid, device, isConfigured ? { ...attachment, isConfigured } : attachment);
  }

  /**
   * Stores that a VF has left its sandbox, so that it must be configured again.
   * @param device as for `detach`
   * @param wasServed whether its claim was served in the sandbox
   */
  left(claimUid: string, device: StoredDevice, wasServed: boolean): void {
    if (device.attachment === undefined) return;
    const { isConfigured, ...attachment } = device.attachment;
    if (isConfigured === undefined && (attachment.wasServed || !wasServed)) return;
    this.#record(claimUid, device, wasServed ? { ...attachment, wasServed } : attachment);
  }

  /**
   * Reads an attached VF.
   * @param known last reading; without it, routes and sysctls are not compared with the claim, which has just set them
   * @returns `undefined` if the VF has left the pod
   * @throws SandboxError `vf-unknown`; NetlinkError
   */
  async read(device: StoredDevice, pod: PodLinks, known?: NetworkDeviceData): Promise<VfState | undefined> {
    return await this.#strategyOf(device).read(device, pod, known);
  }

  /**
   * Detaches a VF from its sandbox and restores its interface. The attachment stays stored until everything is done.
   * @param device copy of the stored device; its attachment is removed as well
   * @throws SandboxError `restore-incomplete` if the VF is on the host but its interface is not restored; NetlinkError,
   * SriovError
   */
  async detach(claimUid: string, device: StoredDevice): Promise<void> {
    // If detaching fails half-way and the sandbox turns out to be alive, the VF must be configured again.
    this.setConfigured(claimUid, device, false);
    const { attachment } = device;
    if (attachment === undefined) return;
    await this.#leave(device, attachment);
    const host = linkOnHost(device);
    if (host !== undefined) {
      const failures = await this.#links.restore(device, host);
      if (failures.length > 0) throw incomplete(device, failures);
    }
    this.#record(claimUid, device, undefined);
  }

  /** Records that a VF is no longer in a sandbox, after something else has restored it. @param device as for `detach` */
  forget(claimUid: string, device: StoredDevice): void {
    this.#record(claimUid, device, undefined);
  }

  /** Returns whether a VF that another component attaches is on the host. */
  async isOnHost(device: StoredDevice): Promise<boolean> {
    return await this.#links.isOnHost(device);
  }

  /** Detaches a VF that another component has left in a sandbox, whichever sandbox that is. @throws NetlinkError, SriovError */
  async detachLost(device: StoredDevice): Promise<void> {
    await this.#links.detachLost(device);
  }

  /**
   * Chooses the interface name for CNI plugins, when the VF is attached: only then are the names known that other components,
   * such as Multus, have used. Refuses a taken name before a plugin is called: the plugin's DEL could remove the other
   * interface.
   * @returns `undefined` if the claim names the interface, or if the VF is already in the pod
   */
  async #cniName(device: StoredDevice, place: SandboxPlace, pod: PodLinks): Promise<string | undefined> {
    if ((await pod.find(device)) !== undefined) return undefined;
    const { interfaceName } = device.config;
    if (interfaceName !== undefined) {
      if (await pod.hasName(interfaceName)) throw nameTakenError({ device, place }, interfaceName);
      return undefined;
    }
    const others = this.#options.store
      .claimsOfPod(place.podUid)
      .flatMap(({ devices }) => devices.filter((other) => !isSameDevice(other, device)));
    const taken = new Set([
      ...others.flatMap(({ config, attachment }) => config.interfaceName ?? attachment?.interfaceName ?? []),
      ...others.flatMap((other) => [groupOf(other), other.config.vrf?.name].filter((name) => name !== undefined)),
    ]);
    for (let number = 1; number <= mostNames; number++) {
      const name = `net${number}`;
      if (!taken.has(name) && !(await pod.hasName(name))) return name;
    }
    throw nameTakenError({ device, place }, `net${mostNames}`);
  }

  /** Detaches a VF from the pod's old sandbox, which may still exist. Never takes a VF from another pod. */
  async #detachFromOther(device: StoredDevice, old: Attachment, place: SandboxPlace): Promise<void> {
    if (old.podUid !== place.podUid && (await this.#isStillIn(device, old))) throw busy(device, old);
    await this.#leave(device, old);
  }

  /**
   * Releases resources of the attachment, deletes the link that was created for it, and moves the device's own link to the
   * host.
   */
  async #leave(device: StoredDevice, attachment: Attachment): Promise<void> {
    const { release, movesDevice } = this.#strategyOf(device);
    await release?.(device, attachment);
    if (movesDevice) await this.#links.detach(device, attachment);
    else if (attachment.created !== undefined)
      await this.#links.deleteCreated(attachment.netnsPath, attachment.created);
  }

  async #isStillIn(device: StoredDevice, { netnsPath }: Attachment): Promise<boolean> {
    using namespace = this.#options.networks.open(netnsPath);
    if (namespace === undefined) return false;
    return (await this.read(device, this.podLinks(namespace))) !== undefined;
  }

  /** Stores the attachment, and sets it in `device`, so that later steps of the same pass see the stored state. */
  #record(claimUid: string, device: StoredDevice, attachment: Attachment | undefined): void {
    this.#options.store.setAttachments(claimUid, new Map([[formatDeviceKey(device), attachment]]));
    if (attachment === undefined) delete device.attachment;
    else device.attachment = attachment;
  }

  #strategyOf(device: StoredDevice): AttachStrategy {
    return this.#strategies[isUserSpace(device) ? 'user-space' : (device.config.attach ?? 'netlink')];
  }
}

function busy(device: StoredDevice, place: Attachment): SandboxError {
  return new SandboxError('vf-busy', `device ${device.name} is in the sandbox of ${podOf(place)}`, {
    device: device.name,
    retriable: true,
    hint: 'the device is detached when that pod ends',
  });
}

function incomplete(device: StoredDevice, failures: readonly { property: string; error: unknown }[]): SandboxError {
  const properties = failures.map(({ property }) => property).join(', ');
  return new SandboxError('restore-incomplete', `cannot restore ${properties} of device ${device.name}`, {
    device: device.name,
    retriable: true,
    cause: failures[0]?.error,
    hint: 'the driver retries, and does not offer the device meanwhile',
  });
}
