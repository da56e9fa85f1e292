import { getU32 } from 'netlink';
import { Attributes } from './attributes.ts';
import type { Route } from './route.ts';

/** `NHA_*` of Linux `nexthop.h`. */
const NextHopAttribute = { id: 1, group: 2, outInterface: 5 } as const;
const headerBytes = 8;
/** Size of `struct nexthop_grp`, in bytes. It begins with the ID. */
const memberBytes = 8;

/** A next hop object, which routes can name instead of links. It has a link, or members that have links. */
export interface NextHop {
  id: number;
  link?: number;
  members: number[];
}

export function decodeNextHop(message: Buffer): NextHop | undefined {
  const attributes = new Attributes(message.subarray(headerBytes));
  const [id, outInterface] = [attributes.get(NextHopAttribute.id), attributes.get(NextHopAttribute.outInterface)];
  if (id === undefined) return undefined;
  const group = attributes.get(NextHopAttribute.group) ?? Buffer.alloc(0);
  const members = Array.from({ length: Math.floor(group.length / memberBytes) }, (_, index) =>
    getU32(group.subarray(index * memberBytes, index * memberBytes + 4)),
  );
  return { id: getU32(id), members, ...(outInterface === undefined ? {} : { link: getU32(outInterface) }) };
}

/** Returns the routes with the links of their next hop objects. */
export function withNextHops(routes: readonly Route[], hops: readonly NextHop[]): Route[] {
  const byId = new Map(hops.map((hop) => [hop.id, hop]));
  const linkOf = (id: number) => byId.get(id)?.link ?? [];
  return routes.map((route) => {
    const { nextHop } = route;
    if (nextHop === undefined) return route;
    return { ...route, links: [nextHop, ...(byId.get(nextHop)?.members ?? [])].flatMap(linkOf) };
  });
}
