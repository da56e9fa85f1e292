import type { Clock } from '../clock.ts';
import { type Attachment, isUserSpace, type Store, type StoredDevice, type VfCarrier } from '../driver/index.ts';
import {
  findVf,
  type Link,
  maxReportedAddresses,
  moveLink,
  type NetnsHandle,
  type NetworkState,
  RtnlConnection,
  readNetworkState,
  toNetworkState,
  type VfIdentity,
  type VfInfo,
} from '../netlink/index.ts';
import type { VfAddress } from '../sriov/index.ts';
import type { CniAttacher } from './cni-attacher.ts';
import { canonicalCidr, configureLink } from './configure-link.ts';
import { SandboxError } from './errors.ts';
import type { SandboxPlace, VfState } from './place.ts';
import { openNetnsIfThere } from './pod-netns.ts';
import type { OnStep } from './steps.ts';

/** How long CNI plugins may take to give a VF back. The kubelet waits 45 s for unprepare, which may be behind a stop. */
const pluginBudgetMs = 10_000;
/** How long they may take to attach one, most of it after the hook: one that hangs is ended, and called again. */
const attachBudgetMs = 60_000;

/** How the node's VFs are told apart and brought back. */
export interface VfHost {
  /** What marks the VF's link, wherever it is. */
  linkKey(pciAddress: string): VfIdentity;
  /** What the PF has set for a VF: all that is known of one without an interface. `undefined`: simulated, no VF. */
  adminInfo(vf: VfAddress): Promise<Omit<VfInfo, 'vfIndex'> | undefined>;
  /** Makes sure that the VF has a link in the host's namespace if it is in no other: simulated ones die with a netns. */
  ensureLink(pciAddress: string): Promise<void>;
  /**
   * The same for a VF that we moved away and that must come back: its link is made anew if it is in a namespace that
   * cannot be reached.
   */
  reclaimLink(pciAddress: string): Promise<void>;
}

export interface VfMoverOptions {
  host: RtnlConnection;
  hostNetns: NetnsHandle;
  vfs: VfHost;
  cni: CniAttacher;
  store: Store;
  clock: Clock;
  onStep: OnStep;
  /** Where the host's `/proc/sys` is, writable. */
  procSysDir: string;
  /** Called before a VF leaves a sandbox, whose namespace nothing here may keep alive any longer. */
  beforeLeave: (sandboxId: string) => void;
}

/** Moves VFs into pods' network namespaces and back: `attach: netlink`. Both ways can be repeated. */
export class VfMover implements VfCarrier {
  readonly #options: VfMoverOptions;

  constructor(options: VfMoverOptions) {
    this.#options = options;
  }

  /**
   * Moves the VF into the pod, sets it up as its claim says, and reads back what came of it.
   * @param device not with `attach: observe`, save for one without an interface: see `observe`
   * @param pod a connection into its namespace
   * @throws SandboxError `vf-missing`, `vf-busy`; NetlinkError for what the kernel refuses
   */
  async attach(
    device: StoredDevice,
    place: SandboxPlace,
    netns: NetnsHandle,
    signal: AbortSignal,
    pod: RtnlConnection,
  ): Promise<VfState> {
    const { clock, onStep } = this.#options;
    using deadline = clock.deadline(attachBudgetMs, signal);
    if (isUserSpace(device)) return await this.#attachUserSpace(device, place, deadline.signal);
    const link = await this.#bringIn(device, place, netns, pod, deadline.signal);
    await onStep('vf-configured', { device: device.name });
    const state = await this.#withVlan(device, await readNetworkState(pod, link.index));
    await onStep('state-read', { device: device.name });
    return state;
  }

  /**
   * VFs that somebody else has moved into the pod, and will take back: all are looked for, stored and read at once, since
   * nobody here changes them.
   * @param devices with `attach: observe`, and an interface: see `isObserved`
   * @throws SandboxError `vf-missing` if one is not there; those that are there are stored
   */
  async observe(
    devices: readonly StoredDevice[],
    place: SandboxPlace,
    pod: RtnlConnection,
  ): Promise<Map<StoredDevice, VfState>> {
    const { store, onStep } = this.#options;
    if (devices.length === 0) return new Map();
    const links = await this.#findAll(pod, devices);
    store.putDevices([...links.keys()].map((device) => ({ ...device, attachment: place })));
    const lost = devices.find((device) => !links.has(device));
    if (lost !== undefined) {
      throw missing(lost, `nobody has moved it into ${place.netnsPath}, and attach is "observe"`);
    }
    for (const { name } of devices) await onStep('vf-configured', { device: name });
    const states = await this.#readLinks(pod, links);
    for (const { name } of devices) await onStep('state-read', { device: name });
    return states;
  }

  /** Reads the states of VFs that are in the pod already; those that are not are missing in the answer. */
  async read(devices: readonly StoredDevice[], netns: NetnsHandle): Promise<Map<StoredDevice, VfState>> {
    const states = new Map<StoredDevice, VfState>();
    for (const device of devices.filter(isUserSpace)) {
      const { networkData } = device;
      if (networkData !== undefined) states.set(device, await this.#readUserSpace(device, networkData.ips ?? []));
    }
    const others = devices.filter((device) => !isUserSpace(device));
    if (others.length === 0) return states;
    using pod = RtnlConnection.open(netns);
    return new Map([...states, ...(await this.#readLinks(pod, await this.#findAll(pod, others)))]);
  }

  /** @param links as they were read just now */
  async #readLinks(pod: RtnlConnection, links: ReadonlyMap<StoredDevice, Link>): Promise<Map<StoredDevice, VfState>> {
    const addresses = links.size === 0 ? [] : await pod.addresses();
    const states = new Map<StoredDevice, VfState>();
    for (const [device, link] of links) {
      states.set(device, await this.#withVlan(device, toNetworkState(link, addresses)));
    }
    return states;
  }

  async #withVlan(device: StoredDevice, state: NetworkState): Promise<VfState> {
    return { ...state, ...vlanOf(await this.#options.vfs.adminInfo(device)) };
  }

  async release(device: StoredDevice): Promise<void> {
    const { store, vfs, cni, clock, onStep } = this.#options;
    const { attachment, networkData: _networkData, ...rest } = device;
    await onStep('release-started', { device: device.name });
    if (attachment !== undefined) {
      this.#options.beforeLeave(attachment.sandboxId);
      using deadline = clock.deadline(pluginBudgetMs);
      await cni.remove(device, attachment, deadline.signal);
      await this.#leave(device, attachment);
    }
    // Not stored of a VF that never left, that has no interface, or that another component moves and takes back.
    if (attachment?.host !== undefined) {
      await vfs.reclaimLink(device.pciAddress);
      await this.#settle(device, attachment.host);
    }
    await onStep('vf-returned', { device: device.name });
    store.putDevice(rest);
    await onStep('attachment-cleared', { device: device.name });
  }

  /** The VF's link in the pod, set up as its claim says, by whoever does that. */
  async #bringIn(
    device: StoredDevice,
    place: SandboxPlace,
    netns: NetnsHandle,
    pod: RtnlConnection,
    signal: AbortSignal,
  ): Promise<Link> {
    const { cni } = this.#options;
    const { attach = 'netlink' } = device.config;
    const found = await this.#find(pod, device);
    if (attach === 'netlink') {
      const link = found ?? (await this.#move(device, place, netns, pod));
      const { addresses, routes } = await cni.addresses(device, place, signal);
      const { config } = device;
      await configureLink({ pod, netns, procSysDir: this.#options.procSysDir }, link, {
        ...config,
        addresses: [...(config.addresses ?? []), ...addresses],
        routes: [...(config.routes ?? []), ...routes],
      });
      return link;
    }
    const { hardwareAddress } = found ?? (await this.#recordAttachment(device, place));
    await cni.add(device, place, signal);
    const link = await this.#find(pod, device, hardwareAddress);
    if (link !== undefined) return link;
    throw missing(device, `the CNI plugins of its claim have not moved it into ${place.netnsPath}`);
  }

  /** A VF that is bound to vfio-pci has no interface to move: the application configures it from the metadata. */
  async #attachUserSpace(device: StoredDevice, place: SandboxPlace, signal: AbortSignal): Promise<VfState> {
    const { store, onStep } = this.#options;
    const old = device.attachment;
    if (old !== undefined && old.podUid !== place.podUid) throw busy(device, old.podUid);
    // Its IPAM plugin has given addresses to that sandbox.
    if (old !== undefined && old.sandboxId !== place.sandboxId) await this.release(device);
    store.putDevice({ ...device, attachment: place });
    await onStep('attachment-recorded', { device: device.name });
    const { addresses } = await this.#options.cni.addresses(device, place, signal);
    const state = await this.#readUserSpace(device, addresses);
    await onStep('state-read', { device: device.name });
    return state;
  }

  /** @param given by the IPAM plugin */
  async #readUserSpace(device: StoredDevice, given: string[]): Promise<VfState> {
    const { interfaceName, addresses = [], mtu } = device.config;
    const info = await this.#options.vfs.adminInfo(device);
    return {
      ...(interfaceName === undefined ? {} : { interfaceName }),
      hardwareAddress: info?.hardwareAddress,
      ips: [...new Set([...addresses, ...given].map(canonicalCidr))].sort().slice(0, maxReportedAddresses),
      tentative: false,
      ...(mtu === undefined ? {} : { mtuBytes: mtu }),
      ...vlanOf(info),
    };
  }

  async #move(device: StoredDevice, place: SandboxPlace, netns: NetnsHandle, pod: RtnlConnection): Promise<Link> {
    const { host, onStep } = this.#options;
    const { index, name } = await this.#recordAttachment(device, place);
    const target = { netns, connection: pod };
    const moved = await moveLink(host, index, target, { name: device.config.interfaceName ?? name });
    await onStep('vf-moved', { device: device.name });
    return moved;
  }

  /** Stores where the VF goes and what it is like now, before it leaves. @returns its link in the host's namespace */
  async #recordAttachment(device: StoredDevice, place: SandboxPlace): Promise<Link> {
    const { store, onStep } = this.#options;
    const { attachment: old, config } = device;
    // Cut short in this very sandbox: the runner clears up what its plugins have left, which a DEL may not find.
    if (old?.sandboxId === place.sandboxId && config.attach === 'cni') return await this.#hostLink(device);
    if (old !== undefined) await this.#leaveOldSandbox(device, old, place);
    const link = await this.#hostLink(device);
    const { name, mtuBytes, hardwareAddress, up } = link;
    const before = { name, mtuBytes, up, ...(hardwareAddress === undefined ? {} : { hardwareAddress }) };
    store.putDevice({ ...device, attachment: { ...place, host: before } });
    await onStep('attachment-recorded', { device: device.name });
    return link;
  }

  /** The runtime makes a new sandbox for the same pod after a failure; another pod's VF is not taken away. */
  async #leaveOldSandbox(device: StoredDevice, old: Attachment, place: SandboxPlace): Promise<void> {
    if (old.podUid !== place.podUid) {
      using netns = openNetnsIfThere(old.netnsPath);
      if (netns !== undefined && (await this.read([device], netns)).size > 0) {
        throw busy(device, old.podUid);
      }
    }
    await this.release(device);
  }

  async #hostLink(device: StoredDevice): Promise<Link> {
    const { host, vfs } = this.#options;
    await vfs.ensureLink(device.pciAddress);
    const link = await this.#find(host, device);
    if (link === undefined) throw missing(device, "it has no interface in the host's network namespace");
    return link;
  }

  /** Takes the VF out of the pod. If the pod's namespace is gone, the VF left it by itself, or is about to. */
  async #leave(device: StoredDevice, attachment: Attachment): Promise<void> {
    const { host, hostNetns } = this.#options;
    using netns = openNetnsIfThere(attachment.netnsPath);
    if (attachment.host === undefined || netns === undefined || netns.equals(hostNetns)) return;
    using pod = RtnlConnection.open(netns);
    const link = await this.#find(pod, device);
    if (link === undefined) return;
    // Addresses and routes do not follow a link into another namespace.
    await moveLink(pod, link.index, { netns: hostNetns, connection: host }, { name: attachment.host.name });
  }

  /** Makes the VF's interface in the host's namespace what it was. One that came back by itself has the pod's name. */
  async #settle(device: StoredDevice, before: NonNullable<Attachment['host']>): Promise<void> {
    const { host } = this.#options;
    const link = await this.#find(host, device);
    if (link === undefined) return;
    const { name, hardwareAddress, mtuBytes, up } = before;
    await host.setLink(link.index, {
      ...(link.name === name ? {} : { name }),
      ...(link.mtuBytes === mtuBytes ? {} : { mtuBytes }),
      ...(hardwareAddress === undefined || link.hardwareAddress === hardwareAddress ? {} : { hardwareAddress }),
      up,
    });
  }

  async #find(connection: RtnlConnection, device: StoredDevice, hardwareAddress?: string): Promise<Link | undefined> {
    return this.#findAmong(await connection.links(), device, hardwareAddress);
  }

  /** Of those that are there. */
  async #findAll(connection: RtnlConnection, devices: readonly StoredDevice[]): Promise<Map<StoredDevice, Link>> {
    const links = await connection.links();
    return new Map(
      devices.flatMap((device): [StoredDevice, Link][] => {
        const link = this.#findAmong(links, device);
        return link === undefined ? [] : [[device, link]];
      }),
    );
  }

  /**
   * By its mark, or by its address if a CNI plugin has replaced the mark: the one that its claim asks for, which a plugin
   * may have set.
   * @param hardwareAddress what it had when it was moved
   */
  #findAmong(
    links: Link[],
    device: StoredDevice,
    hardwareAddress = device.attachment?.host?.hardwareAddress,
  ): Link | undefined {
    const key = this.#options.vfs.linkKey(device.pciAddress);
    const { macAddress } = device.config;
    return (
      findVf(links, { ...key, ...(hardwareAddress === undefined ? {} : { hardwareAddress }) }) ??
      (macAddress === undefined ? undefined : findVf(links, { ...key, hardwareAddress: macAddress }))
    );
  }
}

/** Whether the VF has an interface that somebody else moves. */
export function isObserved(device: StoredDevice): boolean {
  return device.config.attach === 'observe' && !isUserSpace(device);
}

function vlanOf(info: Pick<VfInfo, 'vlan'> | undefined): Pick<VfState, 'vlan'> {
  return info?.vlan === undefined ? {} : { vlan: info.vlan.id };
}

function busy(device: StoredDevice, podUid: string): SandboxError {
  return new SandboxError('vf-busy', `device ${device.name} is in the sandbox of pod ${podUid}`, {
    device: device.name,
    retriable: true,
  });
}

function missing(device: StoredDevice, reason: string): SandboxError {
  return new SandboxError('vf-missing', `device ${device.name} (${device.pciAddress}) cannot be attached: ${reason}`, {
    device: device.name,
    retriable: true,
  });
}
