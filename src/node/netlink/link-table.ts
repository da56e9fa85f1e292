import type { NetlinkMessage } from 'netlink';
import type { Link } from './link.ts';
import { searchBytesOf, type VfIdentity } from './network-state.ts';

/** Limits, since a process in a namespace can create thousands of links a second, each with the address of a VF. */
export interface LinkTableLimit {
  listed: number;
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

/** @param decode @throws NetlinkError `netlink-malformed` */
export function createLinkTable(
  messages: readonly NetlinkMessage[],
  decode: (messages: NetlinkMessage[]) => Link[],
  { listed, decoded }: LinkTableLimit = { listed: Infinity, decoded: Infinity },
): LinkTable {
  const matching = (of: readonly VfIdentity[]) => {
    const marks = of.flatMap(searchBytesOf);
    return messages.filter(({ data }) => marks.some((mark) => data.includes(mark)));
  };
  return {
    all: () => decode(messages.slice(0, decoded)),
    candidates: (of) => decode(matching(of).slice(0, decoded)),
    isCut: (of) => messages.length >= listed || matching(of).length > decoded,
  };
}
