import { createHash } from 'node:crypto';

const maxLength = 253;
const indexDigits = 4;

/**
 * Returns the name of a pool's slice: `<node>-<driver>-0000`. A hash stands in between if the pool is not named after the
 * node, or if the driver's name contains a `-`, whose first part could also be the end of a node's name. Names are the same
 * after a restart and show the order, which the allocator follows, even where slices are sorted by name. They are not
 * generated, so that a creation whose response was lost does not create a second slice.
 */
export function sliceName(place: { nodeName: string; driver: string; pool: string }, index: number): string {
  const { nodeName, driver, pool } = place;
  const plain = `${nodeName}-${driver}`;
  const identity = driver.includes('-') ? `${nodeName}/${driver}/${pool}` : pool;
  const base = identity === nodeName ? plain : `${plain}-${hash(identity)}`;
  const suffix = `-${String(index).padStart(indexDigits, '0')}`;
  if (base.length + suffix.length <= maxLength) return base + suffix;
  const end = `-${hash(base)}${suffix}`;
  // A DNS name has no "." or "-" before a "-" that follows a ".".
  return base.slice(0, maxLength - end.length).replace(/[-.]+$/, '') + end;
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 8);
}
