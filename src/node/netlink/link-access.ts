import type { Link, LinkChange } from './link.ts';
import type { LinkTableLimit } from './link-table.ts';
import type { VfIdentity } from './network-state.ts';

/** Selects a link by index or by name, not by both. */
export type LinkSelector = { index: number } | { name: string };

/** Reader of single links in one network namespace: see `RtnlConnection`. */
export interface LinkReader {
  link(by: LinkSelector): Promise<Link | undefined>;
}

/** Search for links in one network namespace: see `RtnlConnection`. */
export interface LinkFinder extends LinkReader {
  links(of?: readonly VfIdentity[], limit?: LinkTableLimit): Promise<Link[]>;
}

/** Changes of links in one network namespace: see `RtnlConnection`. */
export interface LinkWriter {
  setLink(index: number, change: LinkChange): Promise<void>;
  removeAltNames(index: number, keep?: readonly string[]): Promise<void>;
}
