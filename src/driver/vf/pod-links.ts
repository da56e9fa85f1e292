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

/** Returns the properties that identify the link of a VF in any namespace. */
export type LinkKey = (pciAddress: string) => VfIdentity;

/** Links of a pod's network namespace during one pass over its VFs. They are listed once, and again after a change. */
export class PodLinks {
  readonly namespace: NetworkNamespace;
  readonly #keyOf: LinkKey;
  readonly #follow: () => void;
  #table: Promise<LinkTable> | undefined;

  /** @param follow begins to follow changes in the namespace; may be called repeatedly */
  constructor(namespace: NetworkNamespace, keyOf: LinkKey, follow: () => void = () => undefined) {
    this.namespace = namespace;
    this.#keyOf = keyOf;
    this.#follow = follow;
  }

  /**
   * Begins to follow changes. Must be called after a VF is configured and before its state is read, so that the driver's own
   * changes are not followed.
   */
  follow(): void {
    this.#follow();
  }

  /** Drops the list of links. Must be called after a link was moved or changed. */
  changed(): void {
    this.#table = undefined;
  }

  /** Returns whether a link has this name or alternative name. */
  async hasName(name: string): Promise<boolean> {
    return (await this.namespace.connection.link({ name })) !== undefined;
  }

  /**
   * Finds the link of a VF.
   * @param hardwareAddress address of the VF on the host, if it is not stored with its attachment yet
   * @throws SandboxError `vf-unknown` if the pod has too many links to read all of them; NetlinkError
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
   * Finds the link of one VF. Does not list all links if the link with the likely name is the VF's.
   * @throws as {@link find}
   */
  async findOnce(device: StoredDevice, likelyName: string | undefined): Promise<Link | undefined> {
    const likely = likelyName && (await this.namespace.connection.link({ name: likelyName }));
    return likely && isCertainly(likely, device, this.#keyOf) ? likely : await this.find(device);
  }

  /**
   * Finds the link of an attached VF. If the known list does not have it, lists the links again: a VF that has left the pod
   * keeps containers from starting, so an old list is not enough.
   * @returns `undefined` if the VF is certainly not in the pod
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

  /** Returns the state of a VF after its link was changed. @throws NetlinkError */
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
   * @param link link of the VF, perhaps from an earlier list
   * @returns `undefined` if the VF is certainly in no bond
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

  /** Returns the state of a link. @throws NetlinkError */
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

/** Finds the link of a VF. Tries the likely name first: a large node has hundreds of links. */
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
 * Returns whether a link is certainly the VF's. Only one link can have a bus address, but several can have the same MAC
 * address.
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
 * Returns the identities of a VF: with its MAC address on the host, and with the claimed MAC address. The MAC addresses
 * matter if the kernel does not report the device of a link, or a CNI plugin has replaced the alias.
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
