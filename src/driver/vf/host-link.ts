import { isDeepStrictEqual } from 'node:util';
import type { LinkState } from '../../node/netlink/index.ts';
import type { StoredDevice } from '../model/index.ts';

/**
 * Returns the VF's interface on the host as detaching restores it: its snapshot from before the claim, with what the
 * claim sets from outside, such as its MAC. `undefined` if it has no interface, or another component moves it.
 */
export function linkOnHost({ before, attachment }: Pick<StoredDevice, 'attachment' | 'before'>): LinkState | undefined {
  if (attachment === undefined) return before?.link;
  return attachment.host && ({ ...before?.link, ...attachment.host } as LinkState);
}

/**
 * Returns what to store of an interface that is about to be attached: the differences from its snapshot, or all of it
 * without one.
 */
export function changesOf(link: LinkState, { before }: Pick<StoredDevice, 'before'>): Partial<LinkState> {
  const snapshot: Partial<LinkState> = before?.link ?? {};
  const properties = Object.entries(link) as [keyof LinkState, unknown][];
  return Object.fromEntries(properties.filter(([property, value]) => !isDeepStrictEqual(value, snapshot[property])));
}
