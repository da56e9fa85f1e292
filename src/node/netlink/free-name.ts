import { NetlinkError } from './errors.ts';
import type { LinkReader } from './link-access.ts';

const prefix = 'netdra';
const candidates = 100;

/**
 * Returns a free name for a link whose own name is taken in the namespace: `netdra17` with the link's index, otherwise
 * `netdra17-1` and so on.
 * @throws NetlinkError `netlink-refused` with `EEXIST` if all of them are taken
 */
export async function freeName(connection: LinkReader, index: number): Promise<string> {
  for (let n = 0; n < candidates; n++) {
    const name = n === 0 ? `${prefix}${index % 1e6}` : `${prefix}${index % 1e6}-${n}`;
    if ((await connection.link({ name })) === undefined) return name;
  }
  const message = `all interface names from ${prefix}${index % 1e6} up are taken (EEXIST)`;
  const hint = `delete links whose names begin with ${prefix}`;
  throw new NetlinkError('netlink-refused', message, { errno: 'EEXIST', hint });
}

/** Returns whether a name has the form that {@link freeName} returns. */
export function isFallbackName(name: string): boolean {
  return /^netdra\d+(-\d+)?$/.test(name);
}
