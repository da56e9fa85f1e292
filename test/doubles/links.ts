import type { Link } from '../../src/node/netlink/index.ts';

/** A link as netlink shows it, by default up and with a carrier. */
export function buildLink(parts: Partial<Link> & Pick<Link, 'name'>): Link {
  return { index: 1, mtuBytes: 1500, up: true, carrier: true, altNames: [], ...parts };
}
