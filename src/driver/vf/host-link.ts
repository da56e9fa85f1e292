import { isDeepStrictEqual } from 'node:util';
import type { LinkState } from '../../node/netlink/index.ts';
import type { StoredDevice } from '../model/index.ts';

/**
 * Returns the state in which detaching restores the VF's interface on the host: the snapshot from before the claim, with the
 * changes that the claim made on the host, such as its MAC. `undefined` if the VF has no interface, or another component
 * moves it.
 */
export function linkOnHost({ before, attachment }: Pick<StoredDevice, 'attachment' | 'before'>): LinkState | undefined {
  if (attachment === undefined) return before?.link;
  return attachment.host && ({ ...before?.link, ...attachment.host } as LinkState);
}

/**
 * Returns the part of an interface's state to store when it is attached: the differences from its snapshot, or the whole
 * state if there is no snapshot.
 */
export function changesOf(link: LinkState, { before }: Pick<StoredDevice, 'before'>): Partial<LinkState> {
  const snapshot: Partial<LinkState> = before?.link ?? {};
  const properties = Object.entries(link) as [keyof LinkState, unknown][];
  return Object.fromEntries(properties.filter(([property, value]) => !isDeepStrictEqual(value, snapshot[property])));
}
