import { Attributes, encodeAttributes, encodeString } from './attributes.ts';
import { type Link, LinkAttribute, linkHeaderBytes } from './link.ts';
import type { NetlinkMessage } from './messages.ts';
import type { VfIdentity } from './network-state.ts';
import { type DumpLimit, isCutOff } from './socket.ts';

/** Limits for reading links: a process in a namespace can create thousands of links a second, each with the address of a VF. */
export interface LinkTableLimit {
  /** Limit for the listed messages, also in bytes: one link can have 64 KiB of alternative names. */
  listed: DumpLimit;
  /**
   * Maximum number of decoded links. It is lower than the number of searched messages, since decoding takes ten times as
   * long.
   */
  decoded: number;
}

/**
 * Links of a namespace at one moment. Searching the message of a link for a VF's properties takes a tenth of the time of
 * decoding it, so each method decodes only the links that it returns.
 */
export interface LinkTable {
  /** Returns all links. @throws NetlinkError `netlink-malformed` */
  all(): Link[];
  /** Returns links that may belong to the given VFs. @throws NetlinkError `netlink-malformed` */
  candidates(of: readonly VfIdentity[]): Link[];
  /** Returns whether links were cut off by a limit. Absent: no link is missing. */
  isCut?(of: readonly VfIdentity[]): boolean;
}

/** Maximum number of marks to search messages for. With more marks, decoding the attributes of a message is faster. */
const mostSearched = 16;
const { address, alias, parentDevName } = LinkAttribute;
const markTypes = [parentDevName, alias, address];

const noLimit: LinkTableLimit = { listed: { messages: Infinity, bytes: Infinity }, decoded: Infinity };

/** Returns a table of listed links. @param decode decodes messages @throws NetlinkError `netlink-malformed` */
export function createLinkTable(
  messages: readonly NetlinkMessage[],
  decode: (messages: NetlinkMessage[]) => Link[],
  { listed, decoded }: LinkTableLimit = noLimit,
): LinkTable {
  const matching = (of: readonly VfIdentity[]) => {
    const marks = marksOf(of);
    if (marks.length > mostSearched) return lookUp(messages, marks);
    return messages.filter(({ data }) => marks.some((mark) => data.includes(mark)));
  };
  return {
    all: () => decode(messages.slice(0, decoded)),
    candidates: (of) => decode(matching(of).slice(0, decoded)),
    isCut: (of) => isCutOff(messages, listed) || matching(of).length > decoded,
  };
}

/** Returns the messages that contain one of many marks. Each message is read once, however many marks there are. */
function lookUp(messages: readonly NetlinkMessage[], marks: readonly Buffer[]): NetlinkMessage[] {
  const wanted = new Set(marks.map((mark) => mark.toString('latin1')));
  return messages.filter(({ data }) => {
    try {
      const attributes = new Attributes(data.subarray(linkHeaderBytes));
      return markTypes.some((type) => {
        const value = attributes.get(type);
        return value !== undefined && wanted.has(Buffer.concat(encodeAttributes([{ type, value }])).toString('latin1'));
      });
    } catch {
      // Decoding the message later reports what is wrong with it.
      return true;
    }
  });
}

/**
 * Returns marks: byte strings of which the link message of a VF contains at least one. They are attributes with their
 * headers. A header contains zero bytes, which no name does, so that similar names do not slow down the search.
 */
function marksOf(of: readonly VfIdentity[]): Buffer[] {
  const attributes = of.flatMap((vf) => [
    { type: parentDevName, value: vf.pciAddress && encodeString(vf.pciAddress) },
    { type: alias, value: vf.alias && encodeString(vf.alias) },
    { type: address, value: vf.hardwareAddress && Buffer.from(vf.hardwareAddress.replaceAll(':', ''), 'hex') },
  ]);
  const marks = attributes.flatMap(({ type, value }) =>
    value ? Buffer.concat(encodeAttributes([{ type, value }])) : [],
  );
  return [...new Map(marks.map((mark) => [mark.toString('hex'), mark])).values()];
}
