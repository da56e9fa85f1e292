import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NetlinkError, readLinkState, restoreLinkState, scrubLink } from '../../../../src/node/netlink/index.ts';
import { SriovCard } from '../../../doubles/sriov-card.ts';

let card: SriovCard;
beforeEach(() => {
  card = new SriovCard();
});
afterEach(() => card[Symbol.dispose]());

const refused = (errno: string, retriable: boolean) => new NetlinkError('netlink-refused', errno, { errno, retriable });

describe('readLinkState', () => {
  const parts = ['qdiscs', 'addresses', 'ethtool'] as const;

  /** The card whose part of the state cannot be read. */
  function failing(part: (typeof parts)[number], error: Error) {
    const fail = async () => Promise.reject(error);
    const { host, ethtool } = card;
    return {
      host: { ...host, ...(part === 'qdiscs' ? { qdisc: fail } : part === 'addresses' ? { addresses: fail } : {}) },
      ethtool: part === 'ethtool' ? { ...ethtool, read: fail } : ethtool,
    };
  }

  it.each(parts)('omits %s if the kernel or the driver does not support it', async (part) => {
    const { host, ethtool } = failing(part, refused('EOPNOTSUPP', false));
    const state = await readLinkState(host, card.link(0)!.index, ethtool);
    expect(state).not.toHaveProperty(part);
    expect(Object.keys(state)).toEqual(expect.arrayContaining(parts.filter((each) => each !== part)));
  });

  it.each(parts)('treats a temporarily unreadable %s as unknown, not as absent', async (part) => {
    const busy = refused('EBUSY', true);
    const { host, ethtool } = failing(part, busy);
    const { index } = card.link(0)!;
    await expect(readLinkState(host, index, ethtool)).rejects.toBe(busy);
    const before = await readLinkState(card.host, index, card.ethtool);
    expect(await restoreLinkState(host, index, before, ethtool)).toEqual([{ property: 'link', error: busy }]);
  });
});

it.each([[['one']], [['one', 'two']]])('scrubLink removes the alternative names %j of a link', async (altNames) => {
  const removed: number[] = [];
  const connection = {
    link: async () => ({ index: 5, name: 'net1', altNames }),
    setLink: async () => undefined,
    removeAltNames: async (index: number) => void removed.push(index),
  };
  expect(await scrubLink(connection as never, 5)).toEqual([]);
  expect(removed).toEqual([5]);
});

describe('restoreLinkState', () => {
  it('does not restore a setting whose stored value has another type than the current value', async () => {
    const { index } = card.link(0)!;
    const link = await readLinkState(card.host, index);
    const sets: unknown[] = [];
    const ethtool = {
      read: async () => ({ rings: { rx: 64, tcpDataSplit: 1 } }),
      set: async (...set: unknown[]) => void sets.push(set),
    };
    const before = { ...link, ethtool: { rings: { rx: 256, tcpDataSplit: true } } };
    expect(await restoreLinkState(card.host, index, before, ethtool)).toEqual([]);
    expect(sets).toEqual([[index, 'rings', { rx: 256 }]]);
  });

  it.each([
    ['accepts', 'the link', []],
    ['reports', 'another link', ['altNames']],
  ])('%s an alternative name that udev has just given to %s', async (_verb, holder, failures) => {
    const { index } = card.link(0)!;
    await card.host.addAltName(index, 'enp59s0f0v0');
    const before = await readLinkState(card.host, index);
    await card.host.removeAltNames(index);
    const other = card.link(1)!.index;
    const host = {
      ...card.host,
      addAltName: async (at: number, name: string) => {
        await card.host.addAltName(holder === 'the link' ? index : other, name);
        await card.host.addAltName(at, name);
      },
    };
    expect((await restoreLinkState(host, index, before)).map(({ property }) => property)).toEqual(failures);
  });

  it('picks a free name for a renamed link if another link has taken its original name', async () => {
    const { index } = card.link(0)!;
    const before = await readLinkState(card.host, index);
    await card.host.setLink(index, { up: false });
    await card.host.setLink(index, { name: 'chosen' });
    const other = card.link(1)!;
    await card.host.setLink(other.index, { up: false });
    await card.host.setLink(other.index, { name: before.name });
    const failures = await restoreLinkState(card.host, index, before);
    expect(failures.map(({ property }) => property)).toContain('name');
    expect((await card.host.link({ index }))?.name).not.toBe('chosen');
  });
});
