import {
  findVf,
  isUnidentified,
  type Link,
  type LinkTable,
  type NetworkState,
  toNetworkState,
  type VfIdentity,
} from '../../node/netlink/index.ts';
import { SandboxError, type StoredDevice } from '../model/index.ts';
import { bondOf } from './bonds.ts';
import { linkOnHost } from './host-link.ts';
import { type LinkConnection, mostPodLinks, type NetworkNamespace } from './networks.ts';
import type { MemberState } from './strategy.ts';

/** Returns what identifies the link of a VF in any namespace. */
export type LinkKey = (pciAddress: string) => VfIdentity;

/** A pod's network namespace during one pass over its VFs: its links are listed once, until one is changed. */
export class PodLinks {
  readonly namespace: NetworkNamespace;
  readonly #keyOf: LinkKey;
  readonly #follow: () => void;
  #table: Promise<LinkTable> | undefined;

  /** @param follow starts following changes in the namespace; may be called repeatedly */
  constructor(namespace: NetworkNamespace, keyOf: LinkKey, follow: () => void = () => undefined) {
    this.namespace = namespace;
    this.#keyOf = keyOf;
    this.#follow = follow;
  }

  /** Starts following. Call it after a VF is configured and before its state is read: later changes are not our own. */
  follow(): void {
    this.#follow();
  }

  /** Drops the list of links. Call it after a link was moved or changed. */
  changed(): void {
    this.#table = undefined;
  }

  /** Returns whether a link has this name, or has it as an alternative name. */
  async hasName(name: string): Promise<boolean> {
    return (await this.namespace.connection.link({ name })) !== undefined;
  }

  /**
   * @param hardwareAddress address of the VF on the host, if it is not stored with its attachment yet
   * @throws SandboxError `vf-unknown` if the pod has more links than are read; NetlinkError
   */
  async find(device: StoredDevice, hardwareAddress?: string): Promise<Link | undefined> {
    const table = await this.#list();
    const identities = identitiesOf(device, this.#keyOf, hardwareAddress);
    const found = findFirst(table.candidates(identities), identities);
    if (found !== undefined || table.isCut?.(identities) !== true) return found;
    const { attachment, config } = device;
    for (const name of [config.interfaceName, attachment?.interfaceName, linkOnHost(device)?.name]) {
      const link = name === undefined ? undefined : await this.namespace.connection.link({ name });
      if (link !== undefined && isCertainly(link, device, this.#keyOf)) return link;
    }
    throw tooMany(device);
  }

  /**
   * Finds one VF, without a list of all links if it has the likely name.
   * @throws as {@link find}
   */
  async findOnce(device: StoredDevice, likelyName: string | undefined): Promise<Link | undefined> {
    const likely = likelyName && (await this.namespace.connection.link({ name: likelyName }));
    return likely && isCertainly(likely, device, this.#keyOf) ? likely : await this.find(device);
  }

  /**
   * Finds an attached VF. A VF that has left the pod keeps containers from starting, so that only a new list can show this.
   * @returns `undefined` if it is certainly not in the pod
   * @throws SandboxError `vf-unknown`; NetlinkError
   */
  async findAttached(device: StoredDevice): Promise<Link | undefined> {
    const listed = this.#table !== undefined && (await this.find(device));
    if (listed) return listed;
    this.changed();
    const link = await this.find(device);
    if (link === undefined && this.#keyOf(device.pciAddress).pciAddress !== undefined) {
      const others = (await this.#list()).all().filter(isUnidentified);
      if (others.length > 0) throw unknown(device, others);
    }
    return link;
  }

  #list(): Promise<LinkTable> {
    this.#table ??= this.namespace.connection.linkTable(mostPodLinks);
    return this.#table;
  }

  /** Returns the state of a VF after changes to its link. @throws NetlinkError */
  async stateAfterChange(device: StoredDevice, link: Link): Promise<NetworkState> {
    const { connection } = this.namespace;
    this.changed();
    const [now, addresses] = await Promise.all([
      connection.link({ index: link.index }),
      connection.addresses(link.index),
    ]);
    if (now !== undefined && isCertainly(now, device, this.#keyOf)) return toNetworkState(now, addresses);
    return await this.stateOf((await this.find(device)) ?? link);
  }

  /**
   * Returns the state of a bond, and of its member VF.
   * @param link the VF's, perhaps of an earlier list
   * @returns `undefined` if it is certainly in no bond
   * @throws SandboxError `vf-unknown`; NetlinkError
   */
  async stateOfMember(device: StoredDevice, link: Link): Promise<(NetworkState & { member: MemberState }) | undefined> {
    const { connection } = this.namespace;
    let bond = await bondOf(connection, link);
    let now: Link | undefined = link;
    if (bond === undefined) {
      this.changed();
      now = await this.findAttached(device);
      bond = now && (await bondOf(connection, now));
    }
    if (now === undefined || bond === undefined) return undefined;
    const { ips: _ips, tentative: _tentative, ...own } = toNetworkState(now, []);
    return { ...(await this.stateOf(bond)), member: { ...own, isActive: now.isActiveMember ?? false } };
  }

  /** @throws NetlinkError */
  async stateOf(link: Link): Promise<NetworkState> {
    return toNetworkState(link, await this.namespace.connection.addresses(link.index));
  }
}

function unknown({ name, pciAddress }: StoredDevice, links: readonly Link[]): SandboxError {
  const names = links.map((link) => link.name).join(', ');
  const message = `it is not known whether device ${name} (${pciAddress}) is still in its pod: the kernel does not report which device has the links ${names}`;
  const hint = 'its MAC address was changed in the pod; Linux 5.14 and later report the device of each link';
  return new SandboxError('vf-unknown', message, { device: name, retriable: true, hint });
}

function tooMany({ name, pciAddress }: StoredDevice): SandboxError {
  const { listed, decoded } = mostPodLinks;
  const message = `it is not known whether device ${name} (${pciAddress}) is in its pod: the pod has ${listed.messages} or more links, ${listed.bytes / 1_048_576} MiB of alternative names, or more than ${decoded} links with the address of the device`;
  const hint = 'delete links or alternative names in the pod, or restore the name of the interface of the device';
  return new SandboxError('vf-unknown', message, { device: name, retriable: true, hint });
}

/** Finds a link, first by the likely name: a large node has hundreds of links. */
export async function findOn(
  connection: LinkConnection,
  device: StoredDevice,
  keyOf: LinkKey,
): Promise<Link | undefined> {
  const name = linkOnHost(device)?.name ?? keyOf(device.pciAddress).interfaceName;
  const likely = name === undefined ? undefined : await connection.link({ name });
  if (likely !== undefined && isCertainly(likely, device, keyOf)) return likely;
  const identities = identitiesOf(device, keyOf);
  return findFirst(await connection.links(identities), identities);
}

/**
 * Returns whether a link is the VF's, whatever other links there are: only one link has a bus address, but several can have
 * a MAC address.
 */
function isCertainly({ parentDevice, alias }: Link, { pciAddress }: StoredDevice, keyOf: LinkKey): boolean {
  const key = keyOf(pciAddress);
  return key.pciAddress === undefined ? alias === key.alias : parentDevice === key.pciAddress;
}

function findFirst(links: Link[], identities: readonly VfIdentity[]): Link | undefined {
  for (const identity of identities) {
    const found = findVf(links, identity);
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * Returns the keys of a VF: its own, and its MAC addresses, the old and the claimed one, if a CNI plugin has replaced the
 * key.
 */
function identitiesOf(
  device: StoredDevice,
  keyOf: LinkKey,
  hardwareAddress = device.attachment && linkOnHost(device)?.hardwareAddress,
): VfIdentity[] {
  const { pciAddress, config } = device;
  const key = keyOf(pciAddress);
  return [
    { ...key, ...(hardwareAddress === undefined ? {} : { hardwareAddress }) },
    ...(config.macAddress === undefined ? [] : [{ ...key, hardwareAddress: config.macAddress }]),
  ];
}
