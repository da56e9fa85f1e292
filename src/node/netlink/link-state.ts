import { isDeepStrictEqual } from 'node:util';
import { defined } from '../../lib/defined.ts';
import { isEthernetAddress } from './checks.ts';
import { setCoalescing } from './coalescing.ts';
import { gone, NetlinkError } from './errors.ts';
import type { EthtoolGroup, EthtoolState, EthtoolValues, LinkEthtool } from './ethtool.ts';
import { addressesOf, type HostConfig, type HostConfigConnection, setHostConfig, unlessThere } from './host-config.ts';
import type { Link, LinkChange, LinkFlag, LinkProperties, OffloadLimits, XdpMode } from './link.ts';
import { restoreAltNames, restoreName } from './link-names.ts';
import { type QdiscPlace, qdiscPlaces } from './qdisc.ts';
import type { RtnlConnection } from './rtnl.ts';

/**
 * Properties of a link that a process with CAP_NET_ADMIN in its namespace can change, and that neither a move into another
 * namespace nor the end of a namespace resets. Plain data that can be stored. Absent properties are unknown and are not
 * restored. Only Ethernet addresses are restored: other hardware addresses cannot be set.
 */
export interface LinkState extends LinkProperties {
  name: string;
  mtuBytes: number;
  up: boolean;
  flags?: LinkFlag[];
  altNames?: string[];
  /** Alias; an empty text if there is none. */
  alias?: string;
  /** Modes whose XDP programs stay attached; programs of other modes are detached. Absent: all are detached. */
  xdp?: XdpMode[];
  /** Kinds of qdiscs other than the kernel's default. They are restored with the default settings of their kind. */
  qdiscs?: Partial<Record<QdiscPlace, string>>;
  /** Addresses of global scope, as CIDRs, except those with a lifetime, such as from a router. `hostConfig` takes precedence. */
  addresses?: string[];
  /** Further configuration by the host. Absent: routes are not restored. */
  hostConfig?: HostConfig;
  /** Settings of ethtool. Also absent without access to ethtool. */
  ethtool?: EthtoolState;
}

/** Part of {@link RtnlConnection} that reads and sets a link; the connection is in the link's namespace. */
export type LinkStateConnection = HostConfigConnection &
  Pick<
    RtnlConnection,
    | 'link'
    | 'setLink'
    | 'addAltName'
    | 'removeAltNames'
    | 'qdisc'
    | 'addQdisc'
    | 'removeQdisc'
    | 'addresses'
    | 'addAddress'
    | 'removeAddress'
  >;

/** A property that could not be restored. */
export interface RestoreFailure {
  /** Member of {@link LinkState}, or ethtool group; `link` if nothing could be read. */
  property: Exclude<keyof LinkState, 'ethtool'> | EthtoolGroup | 'link';
  error: unknown;
}

/**
 * Reads the state of a link before it is moved to a pod.
 * @throws NetlinkError `netlink-refused` with `ENODEV` if the link no longer exists, or retriable if a part cannot be read at
 * the moment
 */
export async function readLinkState(
  connection: LinkStateConnection,
  index: number,
  ethtool?: LinkEthtool,
): Promise<LinkState> {
  const [link, qdiscs, addresses, ethtoolState] = await Promise.all([
    connection.link({ index }),
    unlessRefused(readQdiscs(connection, index)),
    unlessRefused(readAddresses(connection, index)),
    ethtool && unlessRefused(ethtool.read(index)),
  ]);
  if (link === undefined) throw gone(index);
  return { ...simpleState(link), ...defined({ qdiscs, addresses, ethtool: ethtoolState }) };
}

/**
 * Removes properties from a link that would harm the host when the link returns: sets the link down, and removes its
 * alternative names and XDP programs. Called in the pod's namespace before the link is moved back. A step may fail; {@link
 * restoreLinkState} does the rest.
 * @returns the steps that failed
 */
export async function scrubLink(connection: LinkStateConnection, index: number): Promise<RestoreFailure[]> {
  const steps = new Steps();
  // Both requests are sent at once, and executed in this order.
  await Promise.all([
    steps.run('up', () => connection.setLink(index, { up: false })),
    steps.run('link', async () => {
      const link = await connection.link({ index });
      if (link === undefined) throw gone(index);
      if (link.altNames.length > 0) await steps.run('altNames', () => connection.removeAltNames(index));
      await steps.run('xdp', () => detachXdp(connection, index, link.xdp));
    }),
  ]);
  return steps.failures;
}

/**
 * Restores a link in the host's namespace, even one that has returned by itself with changes by a pod. Restores each property
 * separately: a failure does not stop the others. If another link has taken the link's name, the link gets a free name, so
 * that a name that the pod has chosen does not stay on the host. Can be repeated.
 * @returns the properties that could not be restored
 */
export async function restoreLinkState(
  connection: LinkStateConnection,
  index: number,
  before: LinkState,
  ethtool?: LinkEthtool,
): Promise<RestoreFailure[]> {
  let now: LinkState;
  try {
    now = await readLinkState(connection, index, ethtool);
  } catch (error) {
    return [{ property: 'link', error }];
  }
  const steps = new Steps();
  const { name, hardwareAddress, mtuBytes, up, hostConfig } = before;
  const isOtherAddress =
    hardwareAddress !== undefined && isEthernetAddress(hardwareAddress) && now.hardwareAddress !== hardwareAddress;
  const set = (change: LinkChange) => connection.setLink(index, change);

  // The link is set down in a separate request: before Linux 6.2 a link that is up cannot be renamed, and many drivers change
  // the MAC address only of a link that is down.
  const mustBeDown = now.up && (!up || now.name !== name || isOtherAddress);
  if (mustBeDown) await steps.run('up', () => set({ up: false }));
  const isRenamed = now.name !== name;
  if (isRenamed) await steps.run('name', () => restoreName(connection, index, name));
  if (isRenamed || !isDeepStrictEqual(now.altNames, before.altNames)) {
    await steps.run('altNames', () => restoreAltNames(connection, index, before.altNames));
  }
  await steps.run('xdp', () => detachXdp(connection, index, now.xdp, before.xdp));
  if (isOtherAddress) await steps.run('hardwareAddress', () => set({ hardwareAddress }));
  if (now.mtuBytes !== mtuBytes) await steps.run('mtuBytes', () => set({ mtuBytes }));
  for (const change of simpleChanges(now, before)) {
    const [property] = Object.keys(change) as (PlainProperty | 'flags' | 'offloadLimits')[];
    if (property !== undefined) await steps.run(property, () => set(change));
  }
  await steps.run('qdiscs', () => restoreQdiscs(connection, index, now.qdiscs, before.qdiscs));
  if (ethtool !== undefined) {
    for (const group of ethtoolGroups) {
      const [current, wanted] = [now.ethtool?.[group] ?? {}, before.ethtool?.[group] ?? {}];
      await steps.run(group, () => restoreEthtool(ethtool, index, group, current, wanted));
    }
  }
  if (up !== (now.up && !mustBeDown)) await steps.run('up', () => set({ up }));
  // Addresses come last: a link that goes down, or whose MTU becomes too small, loses its IPv6 addresses.
  if (hostConfig !== undefined) await steps.run('hostConfig', () => setHostConfig(connection, index, hostConfig));
  const addresses = hostConfig === undefined ? before.addresses : addressesOf(hostConfig);
  if (mustBeDown || now.mtuBytes !== mtuBytes || !isDeepStrictEqual(now.addresses, addresses)) {
    await steps.run('addresses', () => restoreAddresses(connection, index, addresses));
  }
  return steps.failures;
}

/** Runs independent steps and collects their failures. */
class Steps {
  readonly failures: RestoreFailure[] = [];

  async run(property: RestoreFailure['property'], task: () => Promise<void>): Promise<void> {
    try {
      await task();
    } catch (error) {
      this.failures.push({ property, error });
    }
  }
}

/** Returns the part of the state that the kernel's link message contains. */
function simpleState(link: Link): LinkState {
  const { name, mtuBytes, up, altNames, alias = '', flags, linkMode } = link;
  const { hardwareAddress, broadcastAddress, group, txQueueLength, offloadLimits, xdp } = link;
  const known = defined({
    hardwareAddress,
    flags,
    linkMode,
    broadcastAddress,
    group,
    txQueueLength,
    offloadLimits,
    xdp,
  });
  return { name, mtuBytes, up, altNames, alias, ...known };
}

type PlainProperty = 'alias' | 'linkMode' | 'broadcastAddress' | 'group' | 'txQueueLength';

/** Returns the changes of simple properties: each takes one request, and nothing else depends on it. */
function simpleChanges(now: LinkState, before: LinkState): LinkChange[] {
  const change = (property: PlainProperty): LinkChange[] => {
    const value = before[property];
    return value === undefined || value === now[property] ? [] : [{ [property]: value }];
  };
  return [
    ...change('alias'),
    ...(before.flags === undefined || now.flags === undefined ? [] : flagChanges(now.flags, before.flags)),
    ...change('linkMode'),
    ...(isEthernetAddress(before.broadcastAddress ?? '') ? change('broadcastAddress') : []),
    ...change('group'),
    ...change('txQueueLength'),
    ...limitChanges(now.offloadLimits, before.offloadLimits),
  ];
}

function flagChanges(now: LinkFlag[], before: LinkFlag[]): LinkChange[] {
  const differing = [...new Set([...now, ...before])].filter((flag) => now.includes(flag) !== before.includes(flag));
  if (differing.length === 0) return [];
  return [{ flags: Object.fromEntries(differing.map((flag) => [flag, before.includes(flag)])) }];
}

/** Returns all limits if any of them differs: the kernel derives some limits from others. */
function limitChanges(now: OffloadLimits = {}, before: OffloadLimits = {}): LinkChange[] {
  const limits = Object.entries(before) as [keyof OffloadLimits, number][];
  return limits.some(([limit, value]) => now[limit] !== value) ? [{ offloadLimits: before }] : [];
}

async function detachXdp(
  connection: LinkStateConnection,
  index: number,
  now: readonly XdpMode[] = [],
  before: readonly XdpMode[] = [],
): Promise<void> {
  for (const mode of now.filter((each) => !before.includes(each))) {
    await connection.setLink(index, { detachXdp: mode });
  }
}

async function readQdiscs(connection: LinkStateConnection, index: number): Promise<LinkState['qdiscs']> {
  const kinds = await Promise.all(qdiscPlaces.map((place) => connection.qdisc(index, place)));
  const found = qdiscPlaces.flatMap((place, at) => (kinds[at] === undefined ? [] : [[place, kinds[at]]]));
  return Object.fromEntries(found);
}

async function restoreQdiscs(
  connection: LinkStateConnection,
  index: number,
  now: LinkState['qdiscs'],
  before: LinkState['qdiscs'],
): Promise<void> {
  if (now === undefined || before === undefined) return;
  for (const place of qdiscPlaces) {
    const [current, wanted] = [now[place], before[place]];
    if (current === wanted) continue;
    if (current !== undefined) await connection.removeQdisc(index, place);
    if (wanted !== undefined) await connection.addQdisc(index, place, wanted);
  }
}

async function readAddresses(connection: LinkStateConnection, index: number): Promise<string[]> {
  const addresses = await connection.addresses(index);
  return addresses
    .filter(({ scope, dynamic }) => scope === 'global' && dynamic !== true)
    .map(({ cidr }) => cidr)
    .sort();
}

async function restoreAddresses(connection: LinkStateConnection, index: number, before?: string[]): Promise<void> {
  if (before === undefined) return;
  const now = await readAddresses(connection, index);
  for (const cidr of now.filter((each) => !before.includes(each))) await connection.removeAddress(index, cidr);
  for (const cidr of before.filter((each) => !now.includes(each))) {
    // The link may have the same address with a lifetime, from a DHCP client or a router.
    await unlessThere(connection.addAddress(index, cidr), async () => true);
  }
}

/** Groups of settings, in the order of their possible dependencies. */
const ethtoolGroups = ['privateFlags', 'channels', 'rings', 'coalescing', 'pause', 'features'] as const;

/**
 * Sets the values that differ, unless the driver no longer has them. Leaves out values that another version of netdra stored
 * with another type, since their meaning is lost.
 */
async function restoreEthtool(
  ethtool: LinkEthtool,
  index: number,
  group: EthtoolGroup,
  now: EthtoolValues,
  before: EthtoolValues,
): Promise<void> {
  const known = Object.entries(before).filter(([name, value]) => typeof value === typeof now[name]);
  const set = (values: EthtoolValues) => ethtool.set(index, group, values);
  if (group === 'coalescing') {
    const read = async () => (await ethtool.read(index))[group] ?? {};
    return await setCoalescing({ read, set }, now, Object.fromEntries(known));
  }
  const differing = known.filter(([name, value]) => now[name] !== value);
  if (differing.length > 0) await set(Object.fromEntries(differing));
}

/**
 * Waits for a read. Returns `undefined` if the kernel lacks the feature, such as qdiscs. Throws temporary failures: otherwise
 * the property would not be restored.
 */
async function unlessRefused<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (error instanceof NetlinkError && error.code === 'netlink-refused' && !error.retriable) return undefined;
    throw error;
  }
}
