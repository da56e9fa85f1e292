import { formatIpAddress } from './cidr.ts';
import { type EntryTable, type Neighbor, neighborTable } from './entries.ts';
import { NetlinkError } from './errors.ts';
import type { Link } from './link.ts';
import { routeKey } from './route.ts';
import type { RtnlConnection } from './rtnl.ts';
import { cidrOf, routeOf, type SavedEntry, savedAddressTable, savedRouteTable } from './saved-entries.ts';

/** The part of {@link RtnlConnection} that reads and sets a {@link HostConfig}. */
export type HostConfigConnection = Pick<RtnlConnection, 'addEntry' | 'entries' | 'findRoutes'>;

/** What a host has configured on a link and what a move into another namespace removes. Plain data, to be stored. */
export interface HostConfig {
  addresses: SavedEntry[];
  routes: SavedEntry[];
  /** Permanent ones. */
  neighbors: Neighbor[];
}

/** Limit for each kind of entries: a host with a BGP table can have a million routes. */
const mostEntries = 256;
/** Limit for what the kernel lists of each kind, with neighbors that it has learnt and routes of its own. */
const mostListed = 4_096;

/**
 * Reads what the host has configured on a link.
 * @throws NetlinkError `netlink-refused` if there are too many entries, or a route cannot be set on this link alone
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

/** @throws NetlinkError `netlink-refused` for a route that the kernel would refuse on a link with these addresses alone */
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

/** Returns the addresses with their prefix lengths. */
export function addressesOf({ addresses }: HostConfig): string[] {
  return addresses.map(cidrOf);
}

/**
 * Sets what a link that is up does not have yet: first addresses, then routes, of which those by gateways come last. Can be
 * repeated. An entry that the kernel refuses does not stop the others. @throws NetlinkError of the first one
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

/** Ignores that an entry exists, if it is the link's. */
export async function unlessThere(change: Promise<void>, isThere: () => Promise<boolean>): Promise<void> {
  try {
    await change;
  } catch (error) {
    if (!(error instanceof NetlinkError && error.errno === 'EEXIST' && (await isThere()))) throw error;
  }
}
