import type { Attachment, Store, StoredDevice, VfCarrier } from '../driver/index.ts';
import {
  findVf,
  type Link,
  NetlinkError,
  NetnsHandle,
  type NetworkState,
  RtnlConnection,
  readNetworkState,
  type VfIdentity,
} from '../netlink/index.ts';
import { SandboxError } from './errors.ts';
import type { OnStep } from './steps.ts';

/** The sandbox that a VF goes to. */
export interface SandboxPlace {
  podUid: string;
  sandboxId: string;
  netnsPath: string;
}

/** How the node's VFs are told apart and brought back. */
export interface VfHost {
  /** What marks the VF's link, wherever it is. */
  linkKey(pciAddress: string): VfIdentity;
  /** Makes sure that the VF has a link in the host's namespace if it is in no other: simulated ones die with a netns. */
  ensureLink(pciAddress: string): Promise<void>;
}

export interface VfMoverOptions {
  host: RtnlConnection;
  hostNetns: NetnsHandle;
  vfs: VfHost;
  store: Store;
  onStep: OnStep;
}

/** Moves VFs into pods' network namespaces and back: `attach: netlink`. Both ways can be repeated. */
export class VfMover implements VfCarrier {
  readonly #options: VfMoverOptions;

  constructor(options: VfMoverOptions) {
    this.#options = options;
  }

  /**
   * Moves the VF into the pod, sets it up as its claim says, and reads back what came of it.
   * @throws SandboxError `vf-missing`, `vf-busy`; NetlinkError for what the kernel refuses
   */
  async attach(device: StoredDevice, place: SandboxPlace, netns: NetnsHandle): Promise<NetworkState> {
    const { onStep } = this.#options;
    using pod = RtnlConnection.open(netns);
    const link = (await this.#find(pod, device)) ?? (await this.#move(device, place, netns, pod));
    await configure(pod, link, device);
    await onStep('vf-configured', { device: device.name });
    const state = await readNetworkState(pod, link.index);
    await onStep('state-read', { device: device.name });
    return state;
  }

  /** Reads the state of a VF that is in the pod already. */
  async read(device: StoredDevice, netns: NetnsHandle): Promise<NetworkState | undefined> {
    using pod = RtnlConnection.open(netns);
    const link = await this.#find(pod, device);
    return link && (await readNetworkState(pod, link.index));
  }

  async release(device: StoredDevice): Promise<void> {
    const { store, vfs, onStep } = this.#options;
    const { attachment, networkData: _networkData, ...rest } = device;
    await onStep('release-started', { device: device.name });
    if (attachment !== undefined) await this.#bringBack(device, attachment);
    await vfs.ensureLink(device.pciAddress);
    await onStep('vf-returned', { device: device.name });
    store.putDevice(rest);
    await onStep('attachment-cleared', { device: device.name });
  }

  async #move(device: StoredDevice, place: SandboxPlace, netns: NetnsHandle, pod: RtnlConnection): Promise<Link> {
    const { host, store, onStep } = this.#options;
    if (device.attachment !== undefined) await this.#leaveOldSandbox(device, device.attachment, place);
    const link = await this.#hostLink(device);
    const { name, mtuBytes, hardwareAddress = '' } = link;
    store.putDevice({ ...device, attachment: { ...place, host: { name, mtuBytes, hardwareAddress } } });
    await onStep('attachment-recorded', { device: device.name });
    await host.setLink(link.index, { netns, name: device.config.interfaceName ?? name });
    await onStep('vf-moved', { device: device.name });
    const moved = await this.#find(pod, device);
    if (moved === undefined) throw missing(device, `it did not arrive in ${place.netnsPath}`);
    return moved;
  }

  /** The runtime makes a new sandbox for the same pod after a failure; another pod's VF is not taken away. */
  async #leaveOldSandbox(device: StoredDevice, old: Attachment, place: SandboxPlace): Promise<void> {
    if (old.podUid !== place.podUid) {
      using netns = openNetns(old.netnsPath);
      if (netns !== undefined && (await this.read(device, netns)) !== undefined) {
        throw new SandboxError('vf-busy', `device ${device.name} is in the sandbox of pod ${old.podUid}`, {
          device: device.name,
          retriable: true,
        });
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

  async #bringBack(device: StoredDevice, attachment: Attachment): Promise<void> {
    const { host, hostNetns } = this.#options;
    using netns = openNetns(attachment.netnsPath);
    const { name, mtuBytes, hardwareAddress } = attachment.host;
    if (netns !== undefined && netns.inode.ino !== hostNetns.inode.ino) {
      using pod = RtnlConnection.open(netns);
      const link = await this.#find(pod, device);
      // Addresses and routes do not follow a link into another namespace.
      if (link !== undefined) await pod.setLink(link.index, { up: false, netns: hostNetns, name });
    }
    const link = await this.#find(host, device);
    if (link === undefined) return;
    await host.setLink(link.index, { mtuBytes, ...(hardwareAddress === '' ? {} : { hardwareAddress }) });
    // A VF that came back by itself, with its namespace, has the name that it had in the pod.
    if (link.name !== name) await host.setLink(link.index, { name });
    await host.setLink(link.index, { up: true });
  }

  async #find(connection: RtnlConnection, device: StoredDevice): Promise<Link | undefined> {
    return findVf(await connection.links(), this.#options.vfs.linkKey(device.pciAddress));
  }
}

/** Everything that the claim asks for; what is there already from an attempt before is left as it is. */
async function configure(pod: RtnlConnection, link: Link, { config }: StoredDevice): Promise<void> {
  const { macAddress, mtu, addresses = [], routes = [] } = config;
  await pod.setLink(link.index, {
    ...(macAddress === undefined ? {} : { hardwareAddress: macAddress }),
    ...(mtu === undefined ? {} : { mtuBytes: mtu }),
  });
  for (const address of addresses) await unlessThere(pod.addAddress(link.index, address, { noDad: true }));
  await pod.setLink(link.index, { up: true });
  for (const { destination, gateway } of routes) {
    await unlessThere(pod.addRoute({ index: link.index, destination, ...(gateway === undefined ? {} : { gateway }) }));
  }
}

async function unlessThere(change: Promise<void>): Promise<void> {
  try {
    await change;
  } catch (error) {
    if (!(error instanceof NetlinkError && error.errno === 'EEXIST')) throw error;
  }
}

/** The namespace, or `undefined` if it is gone: the VF left it with its end. */
function openNetns(path: string): NetnsHandle | undefined {
  try {
    return NetnsHandle.open(path);
  } catch (error) {
    // A runtime that was killed may leave the plain file on which it had bound the namespace.
    if (error instanceof NetlinkError && ['netns-missing', 'netns-invalid'].includes(error.code)) return undefined;
    throw error;
  }
}

function missing(device: StoredDevice, reason: string): SandboxError {
  return new SandboxError('vf-missing', `device ${device.name} (${device.pciAddress}) cannot be attached: ${reason}`, {
    device: device.name,
    retriable: true,
  });
}
