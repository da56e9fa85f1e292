import { canonicalCidr } from './cidr.ts';
import { type EntryTable, type Neighbor, neighborTable } from './entries.ts';
import { NetlinkError } from './errors.ts';
import type { Link } from './link.ts';
import { routeKey } from './route.ts';
import type { RtnlConnection } from './rtnl.ts';
import { cidrOf, routeOf, type SavedEntry, savedAddressTable, savedRouteTable } from './saved-entries.ts';

/** The part of {@link RtnlConnection} that reads and sets a {@link HostConfig}. */
export type HostConfigConnection = Pick<RtnlConnection, 'addEntry' | 'entries' | 'routes'>;

/** What a host has configured on a link and what a move into another namespace removes. Plain data, to be stored. */
export interface HostConfig {
  addresses: SavedEntry[];
  routes: SavedEntry[];
  /** Permanent ones. */
  neighbors: Neighbor[];
}

/** Limit for each kind of entries: a host with a BGP table can have a million routes. */
const mostEntries = 256;

/**
 * Reads what the host has configured on a link.
 * @throws NetlinkError `netlink-refused` if there are too many entries, or a route leaves by another link, too
 */
export async function readHostConfig(connection: HostConfigConnection, link: Link): Promise<HostConfig> {
  const read = async <Entry>(table: EntryTable<Entry, string>): Promise<Entry[]> => {
    const entries = await connection.entries(table, link.index, mostEntries);
    if (entries !== undefined) return entries;
    throw unkept(link, `it has ${mostEntries} or more ${table.name}`, `remove ${table.name}, or choose another NIC`);
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
  const shared = own.routes.find((entry) => routeOf(entry).links.some((index) => index !== link.index));
  if (shared === undefined) return own;
  const what = `its route to ${savedRouteTable.format(shared)} leaves by another interface, too`;
  throw unkept(link, what, 'give each interface a route of its own, with a metric');
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

/** Returns the addresses with their prefix lengths. */
export function addressesOf({ addresses }: HostConfig): string[] {
  return addresses.map(cidrOf);
}

/**
 * Sets what a link that is up does not have yet: first addresses, then routes, of which those by gateways come last. Can be
 * repeated. @throws NetlinkError
 */
export async function setHostConfig(
  connection: HostConfigConnection,
  index: number,
  { addresses, routes, neighbors }: HostConfig,
): Promise<void> {
  for (const entry of addresses) {
    await unlessThere(connection.addEntry(savedAddressTable, index, entry), async () => true);
  }
  const isByGateway = (entry: SavedEntry) => Number(routeOf(entry).gateways !== undefined);
  for (const entry of routes.toSorted((one, other) => isByGateway(one) - isByGateway(other))) {
    const route = routeOf(entry);
    const key = routeKey(canonicalCidr(route.destination), route);
    await unlessThere(connection.addEntry(savedRouteTable, index, entry), async () => {
      const found = await connection.routes(index);
      return found.some((each) => each.links.includes(index) && routeKey(each.destination, each) === key);
    });
  }
  for (const neighbor of neighbors) await connection.addEntry(neighborTable, index, neighbor);
}

/** Ignores that an entry exists, if it is the link's. */
export async function unlessThere(change: Promise<void>, isThere: () => Promise<boolean>): Promise<void> {
  try {
    await change;
  } catch (error) {
    if (!(error instanceof NetlinkError && error.errno === 'EEXIST' && (await isThere()))) throw error;
  }
}
