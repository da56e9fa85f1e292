import { Attributes, encodeAttributes, encodeString } from './attributes.ts';
import { type Link, LinkAttribute, linkHeaderBytes } from './link.ts';
import type { NetlinkMessage } from './messages.ts';
import type { VfIdentity } from './network-state.ts';
import { type DumpLimit, isCutOff } from './socket.ts';

/** Limits, since a process in a namespace can create thousands of links a second, each with the address of a VF. */
export interface LinkTableLimit {
  /** Also in bytes: one link can have 64 KiB of alternative names. */
  listed: DumpLimit;
  /** Lower than the number of searched messages: decoding a link takes ten times as long. */
  decoded: number;
}

/**
 * The links of a namespace at one moment. Decoding a link takes ten times as long as searching its message for a VF's
 * properties, so that each function decodes only the links that it returns.
 */
export interface LinkTable {
  /** @throws NetlinkError `netlink-malformed` */
  all(): Link[];
  /** Returns links that may belong to the given VFs. @throws NetlinkError `netlink-malformed` */
  candidates(of: readonly VfIdentity[]): Link[];
  /** Returns whether links beyond the limit are missing. Absent: none is. */
  isCut?(of: readonly VfIdentity[]): boolean;
}

/** With more marks than these, looking up a message's attributes is faster than searching the message for each mark. */
const mostSearched = 16;
const { address, alias, parentDevName } = LinkAttribute;
const markTypes = [parentDevName, alias, address];

const noLimit: LinkTableLimit = { listed: { messages: Infinity, bytes: Infinity }, decoded: Infinity };

/** @param decode @throws NetlinkError `netlink-malformed` */
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

/** Returns the messages with one of many marks, whose number does not matter as each message is read once. */
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
      // Decoding it says what is wrong.
      return true;
    }
  });
}

/**
 * Returns byte strings of which a VF's link message has at least one: attributes with their headers. A header has zero
 * bytes, which no name has, so that similar names do not slow the search down.
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
