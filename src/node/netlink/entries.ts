import { FlagsNew, getU32, putU32 } from 'netlink';
import { type Attribute, Attributes, decodeHardwareAddress, encodeAttributes } from './attributes.ts';
import { assertIndex, invalid, parseHardwareAddress } from './checks.ts';
import { AddressFamily, canonicalCidr, formatCidr, formatIpAddress, parseCidr, parseIpAddress } from './cidr.ts';
import { neighborHints, ruleHints } from './request-hints.ts';
import { decodeAll, type RtnlRequests } from './rtnl-requests.ts';

/** A kind of entries in a network namespace, such as routing rules or neighbors, with its netlink messages. */
export interface EntryTable<Entry, Name extends string = string> {
  /** Name of the kind in messages. */
  name: Name;
  /** Message types: `RTM_NEW*` and `RTM_GET*` of Linux `rtnetlink.h`. */
  newType: number;
  getType: number;
  /** Flags that tell the kernel what to do if the entry exists. */
  flags: number;
  /** Remedies for the kernel's errors, by errno. */
  hints: Record<string, string>;
  /** Encodes the payload of a request for a new entry. @throws NetlinkError `netlink-invalid` */
  encode(entry: Entry, index: number): Uint8Array[];
  /** Encodes the payload of a request for the entries of a link or of the namespace. */
  encodeFilter(index: number): Uint8Array[];
  /** Decodes an entry; `undefined` for entries of other kinds. */
  decode(message: Buffer): Entry | undefined;
  /** Formats an entry so that equal entries have equal texts, whatever their notation. */
  format(entry: Entry): string;
}

/** Lists entries: see `RtnlConnection.entries`. */
export async function readEntries<Entry>(
  requests: RtnlRequests,
  table: EntryTable<Entry>,
  index: number,
  most: number,
): Promise<Entry[] | undefined> {
  const subject = requests.subject(`list ${table.name}`);
  const request = { type: table.getType, payload: table.encodeFilter(index) };
  const { messages, isCut } = await requests.dumpOf(index, request, subject, most);
  return isCut ? undefined : decodeAll(messages, table.newType, table.decode, subject);
}

/** Adds an entry: see `RtnlConnection.addEntry`. */
export async function addEntry<Entry>(
  requests: RtnlRequests,
  table: EntryTable<Entry>,
  index: number,
  entry: Entry,
): Promise<void> {
  const subject = requests.subject(`set ${table.name} (${table.format(entry)}) of link`, index, table.hints);
  await requests.send({ type: table.newType, flags: table.flags, payload: table.encode(entry, index) }, subject);
}

/**
 * A rule that sends packets of a network namespace to a routing table. Its source or destination, or both, are set, with
 * prefix length.
 */
export interface Rule {
  /** Priority; the kernel applies rules with low numbers first. */
  priority: number;
  source?: string | undefined;
  destination?: string | undefined;
  table: number;
}

/** `FRA_*` of Linux `fib_rules.h`. */
const RuleAttribute = { destination: 1, source: 2, priority: 6, table: 15 } as const;
/** `FR_ACT_TO_TBL` of Linux `fib_rules.h`: look up a routing table. */
const actionTable = 1;
/** Size of `struct fib_rule_hdr` and `struct ndmsg`, in bytes. */
const headerBytes = 12;

export const ruleTable: EntryTable<Rule, 'rules'> = {
  name: 'rules',
  newType: 32,
  getType: 34,
  flags: FlagsNew.CREATE | FlagsNew.EXCL,
  hints: ruleHints,
  encode({ priority, source, destination, table }) {
    const [from, to] = [source, destination].map((cidr) => (cidr === undefined ? undefined : parseCidr(cidr)));
    const family = (from ?? to)?.family;
    if (family === undefined) throw invalid('a rule has neither source nor destination', 'give it one of the two');
    const header = Buffer.alloc(headerBytes);
    header.set([family, to?.prefixLength ?? 0, from?.prefixLength ?? 0]);
    header[7] = actionTable;
    const attributes: Attribute[] = [
      { type: RuleAttribute.priority, value: putU32(priority) },
      { type: RuleAttribute.table, value: putU32(table) },
    ];
    if (from !== undefined) attributes.push({ type: RuleAttribute.source, value: from.octets });
    if (to !== undefined) attributes.push({ type: RuleAttribute.destination, value: to.octets });
    return [header, ...encodeAttributes(attributes)];
  },
  encodeFilter: () => [Buffer.alloc(headerBytes)],
  decode(message) {
    const [family, toLength = 0, fromLength = 0] = message;
    if (family !== AddressFamily.ipv4 && family !== AddressFamily.ipv6) return undefined;
    if (message[7] !== actionTable) return undefined;
    const attributes = new Attributes(message.subarray(headerBytes));
    const number = (type: number) => getU32(attributes.get(type) ?? Buffer.alloc(4));
    const anywhere = Buffer.alloc(family === AddressFamily.ipv4 ? 4 : 16);
    const network = (type: number, length: number) => formatCidr(attributes.get(type) ?? anywhere, length);
    return {
      priority: number(RuleAttribute.priority),
      source: network(RuleAttribute.source, fromLength),
      destination: network(RuleAttribute.destination, toLength),
      table: number(RuleAttribute.table),
    };
  },
  format({ priority, source, destination, table }) {
    const [from, to] = [source ?? '/0', destination ?? '/0'];
    // For the kernel, a network of all addresses is the same as none.
    const parts = [
      ...(from.endsWith('/0') ? [] : [`from ${canonicalCidr(from)}`]),
      ...(to.endsWith('/0') ? [] : [`to ${canonicalCidr(to)}`]),
    ];
    const all = `${from}${to}`.includes(':') ? 'from ::/0' : 'from 0.0.0.0/0';
    return `${priority}: ${parts.join(' ') || all} in table ${table}`;
  },
};

/** A permanent entry of a link's ARP or neighbor table. */
export interface Neighbor {
  address: string;
  macAddress: string;
}

/** `NDA_*` of Linux `neighbour.h`. */
const NeighborAttribute = { address: 1, macAddress: 2, index: 8 } as const;
/** `NUD_PERMANENT` of Linux `neighbour.h`. */
const permanent = 0x80;

export const neighborTable: EntryTable<Neighbor, 'neighbors'> = {
  name: 'neighbors',
  newType: 28,
  getType: 30,
  // The kernel may already have learned another hardware address for the neighbor.
  flags: FlagsNew.CREATE | FlagsNew.REPLACE,
  hints: neighborHints,
  encode({ address, macAddress }, index) {
    const { family, octets } = parseIpAddress(address);
    const header = Buffer.alloc(headerBytes);
    header[0] = family;
    putU32(assertIndex(index)).copy(header, 4);
    header.writeUInt16LE(permanent, 8);
    const attributes = [
      { type: NeighborAttribute.address, value: octets },
      { type: NeighborAttribute.macAddress, value: parseHardwareAddress(macAddress) },
    ];
    return [header, ...encodeAttributes(attributes)];
  },
  encodeFilter: (index) => [
    Buffer.alloc(headerBytes),
    ...encodeAttributes([{ type: NeighborAttribute.index, value: putU32(assertIndex(index)) }]),
  ],
  decode(message) {
    if ((message.readUInt16LE(8) & permanent) === 0) return undefined;
    const attributes = new Attributes(message.subarray(headerBytes));
    const octets = attributes.get(NeighborAttribute.address);
    const macAddress = decodeHardwareAddress(attributes.get(NeighborAttribute.macAddress));
    if (octets === undefined || macAddress === undefined) return undefined;
    return { address: formatIpAddress(octets), macAddress };
  },
  format: ({ address, macAddress }) =>
    `${formatIpAddress(parseIpAddress(address).octets)} at ${macAddress.toLowerCase()}`,
};
