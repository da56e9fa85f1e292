import { describe, expect, it } from 'vitest';
import { createOnce, deleteCreated, linkToCreate } from '../../../../src/driver/vf/created-links.ts';
import type { LinkConnection } from '../../../../src/driver/vf/networks.ts';
import { type Link, NetlinkError } from '../../../../src/node/netlink/index.ts';

const created = linkToCreate('bond', 'claim-uid', 'bond0');
const { alias } = created;

/** A pod with such a link of the claim: complete, or as a driver leaves it that is killed before it has its name. */
function podWith(link: { kind: string } | undefined, isComplete: boolean) {
  const calls: unknown[] = [];
  const found = link && { index: 9, ...link };
  const named = found && { ...found, name: 'bond0', alias };
  const connection = {
    links: async () => [{ index: 3, name: 'eth0', kind: 'veth' }, ...(named && isComplete ? [named] : [])],
    link: async ({ name = '' }) => {
      return found && !isComplete && /^netdra-[0-9a-f]{8}$/.test(name) ? { ...found, name } : undefined;
    },
    setLink: async (...change: unknown[]) => void calls.push(change),
    deleteLink: async (index: number) => void calls.push(index),
  };
  return { connection: connection as unknown as LinkConnection, calls };
}

it.each([
  ['deletes a complete link', { kind: 'bond' }, true, [9]],
  ['deletes a link that a killed driver had not named yet', { kind: 'bond' }, false, [9]],
  ['leaves a link of another kind under the temporary name', { kind: 'dummy' }, false, []],
  ['does nothing if there is no such link', undefined, false, []],
])('deleteCreated %s', async (_, link, isComplete, expected) => {
  const { connection, calls } = podWith(link, isComplete);
  await deleteCreated(connection, created);
  expect(calls).toEqual(expected);
});

describe('createOnce', () => {
  const create = async (link: { kind: string } | undefined, isComplete: boolean) => {
    const { connection, calls } = podWith(link, isComplete);
    const made = await createOnce(connection, created, 'bond0', async (name) => void calls.push(name));
    return { made, calls };
  };

  it('leaves a complete link as it is', async () => {
    const { made, calls } = await create({ kind: 'bond' }, true);
    expect([made, calls]).toMatchObject([{ index: 9, name: 'bond0', alias }, []]);
  });

  it('completes a link if the driver was killed while creating it', async () => {
    const { made, calls } = await create({ kind: 'bond' }, false);
    expect([made, calls]).toMatchObject([{ index: 9, name: 'bond0', alias }, [[9, { name: 'bond0', alias }]]]);
  });

  it('returns nothing for a new link that the pod deletes at once', async () => {
    const { made, calls } = await create(undefined, false);
    expect([made, calls]).toEqual([undefined, [expect.stringMatching(/^netdra-[0-9a-f]{8}$/)]]);
  });

  /** A pod in which another instance of the driver makes the link first. @param madeAs undefined: the pod has made another one */
  const createSecond = async (madeAs: Partial<Link> | undefined) => {
    const changes: unknown[] = [];
    let made: Partial<Link> = {};
    const connection = {
      links: async () => [made],
      link: async ({ name = '' }) => (made.name === name ? made : undefined),
      setLink: async (...change: unknown[]) => void changes.push(change),
    } as unknown as LinkConnection;
    const make = async (name: string) => {
      made = { index: 9, name, kind: 'bond', ...(madeAs ?? { kind: 'dummy' }) };
      throw new NetlinkError('netlink-refused', 'refused', { errno: 'EEXIST' });
    };
    return { result: await createOnce(connection, created, 'bond0', make), changes };
  };

  it('completes a link that another instance of the driver is creating', async () => {
    const { result, changes } = await createSecond({});
    expect([result, changes]).toMatchObject([{ index: 9, name: 'bond0', alias }, [[9, { name: 'bond0', alias }]]]);
  });

  it('uses a link that another instance of the driver has completed meanwhile', async () => {
    const { result, changes } = await createSecond({ name: 'bond0', alias });
    expect([result, changes]).toMatchObject([{ index: 9, name: 'bond0', alias }, []]);
  });

  it('finds a link that another instance of the driver completes between two look-ups', async () => {
    const calls: unknown[] = [];
    let lookups = 0;
    const isComplete = () => lookups++ > 0;
    const connection = {
      links: async () => (isComplete() ? [{ index: 9, name: 'bond0', kind: 'bond', alias }] : []),
      link: async ({ name = '' }) => (isComplete() ? undefined : { index: 9, name, kind: 'bond' }),
      setLink: async (...change: unknown[]) => void calls.push(change),
    } as unknown as LinkConnection;
    const result = await createOnce(connection, created, 'bond0', async (name) => void calls.push(name));
    expect([result, calls]).toMatchObject([{ index: 9, name: 'bond0', alias }, [[9, { name: 'bond0', alias }]]]);
  });

  it('fails if a link of another kind already has the wanted name', async () => {
    await expect(createSecond(undefined)).rejects.toMatchObject({ errno: 'EEXIST' });
  });
});
