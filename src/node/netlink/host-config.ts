import { formatIpAddress } from './cidr.ts';
import { type EntryTable, type Neighbor, neighborTable } from './entries.ts';
import { NetlinkError } from './errors.ts';
import type { Link } from './link.ts';
import { routeKey } from './route.ts';
import type { RtnlConnection } from './rtnl.ts';
import { cidrOf, routeOf, type SavedEntry, savedAddressTable, savedRouteTable } from './saved-entries.ts';

/** Part of {@link RtnlConnection} that reads and sets a {@link HostConfig}. */
export type HostConfigConnection = Pick<RtnlConnection, 'addEntry' | 'entries' | 'findRoutes'>;

/** Configuration of a link by the host that a move into another namespace removes. Plain data that can be stored. */
export interface HostConfig {
  addresses: SavedEntry[];
  routes: SavedEntry[];
  /** Permanent neighbors. */
  neighbors: Neighbor[];
}

/** Maximum number of entries of each kind: a host with a BGP table can have a million routes. */
const mostEntries = 256;
/**
 * Maximum number of listed entries of each kind, including neighbors that the kernel has learned and routes that it has
 * added.
 */
const mostListed = 4_096;

/**
 * Reads the configuration of a link by the host.
 * @throws NetlinkError `netlink-refused` if there are too many entries, or if a route cannot be set on this link alone
 */
export async function readHostConfig(connection: HostConfigConnection, link: Link): Promise<HostConfig> {
  const read = async <Entry>(table: EntryTable<Entry>): Promise<Entry[]> => {
    const entries = await connection.entries(table, link.index, mostListed);
    if (entries !== undefined && entries.length < mostEntries) return entries;
    const most = entries === undefined ? mostListed : mostEntries;
    throw unkept(link, `it has ${most} or more ${table.name}`, `remove ${table.name}, or choose another NIC`);
  };
  const addresses = await read(savedAddressTable);
  const routes = await read(savedRouteTable);
  const neighbors = await read(neighborTable);
  // Kernels before 4.20 list the entries of all links.
  const own = {
    addresses: addresses.filter((entry) => Buffer.from(entry, 'hex').readUInt32LE(4) === link.index),
    routes: routes.filter((entry) => routeOf(entry).links.includes(link.index)),
    neighbors,
  };
  assertSettable(link, own);
  return own;
}

/**
 * Checks that the routes can be set on a link with these addresses alone. @throws NetlinkError `netlink-refused` for a route
 * that the kernel would refuse
 */
function assertSettable(link: Link, config: HostConfig): void {
  const sources = addressesOf(config).map((cidr) => cidr.split('/')[0]);
  const keys = new Set<string>();
  for (const entry of config.routes) {
    const route = routeOf(entry);
    const name = savedRouteTable.format(entry);
    if (route.links.some((index) => index !== link.index)) {
      const hint = 'give each interface a route of its own, with a metric';
      throw unkept(link, `its route to ${name} leaves by another interface, too`, hint);
    }
    if (route.source !== undefined && !sources.includes(formatIpAddress(route.source))) {
      const hint = 'give the interface this address, or remove the source address';
      throw unkept(link, `the source address of its route to ${name} is not an address of the interface`, hint);
    }
    const key = routeKey(route.destination, route);
    if (keys.has(key)) throw unkept(link, `it has two routes to ${name} with the same metric`, 'remove one of them');
    keys.add(key);
  }
}

function unkept({ name, index }: Link, what: string, hint: string): NetlinkError {
  const message = `cannot keep the configuration of the host on ${name} (#${index}): ${what}`;
  return new NetlinkError('netlink-refused', message, {
    operation: 'keep',
    interfaceName: name,
    retriable: true,
    hint,
  });
}

/** Returns the addresses of a configuration with their prefix lengths. */
export function addressesOf({ addresses }: HostConfig): string[] {
  return addresses.map(cidrOf);
}

/**
 * Sets the entries that a link does not have yet: addresses, then routes on the link, then routes by gateways, then
 * neighbors. The link must be up. Can be repeated. If the kernel refuses an entry, the others are still set. @throws
 * NetlinkError of the first one
 */
export async function setHostConfig(
  connection: HostConfigConnection,
  index: number,
  { addresses, routes, neighbors }: HostConfig,
): Promise<void> {
  const errors: unknown[] = [];
  const set = async <Entry>(table: EntryTable<Entry>, entry: Entry, isThere?: () => Promise<boolean>) => {
    const adding = connection.addEntry(table, index, entry);
    await (isThere === undefined ? adding : unlessThere(adding, isThere)).catch((error: unknown) => errors.push(error));
  };
  for (const entry of addresses) await set(savedAddressTable, entry, async () => true);
  const isByGateway = (entry: SavedEntry) => Number(routeOf(entry).gateways !== undefined);
  for (const entry of routes.toSorted((one, other) => isByGateway(one) - isByGateway(other))) {
    const isThere = async () => (await connection.findRoutes(index, [routeOf(entry)])).found[0] !== undefined;
    await set(savedRouteTable, entry, isThere);
  }
  for (const neighbor of neighbors) await set(neighborTable, neighbor);
  if (errors.length > 0) throw errors[0];
}

/** Waits for a change, and ignores EEXIST if the entry is the link's own. */
export async function unlessThere(change: Promise<void>, isThere: () => Promise<boolean>): Promise<void> {
  try {
    await change;
  } catch (error) {
    if (!(error instanceof NetlinkError && error.errno === 'EEXIST' && (await isThere()))) throw error;
  }
}
