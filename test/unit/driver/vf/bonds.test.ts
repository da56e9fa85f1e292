import { expect, it } from 'vitest';
import { bondAlias, deleteBond } from '../../../../src/driver/vf/bonds.ts';
import type { LinkConnection } from '../../../../src/driver/vf/networks.ts';

const alias = bondAlias('claim-uid', { name: 'bond0' });

it.each([
  ['complete', { index: 9, name: 'bond0', alias, kind: 'bond' }, [9]],
  ['not complete, since the driver was killed before it had its name', { index: 9, kind: 'bond' }, [9]],
  ["another link under a bond's first name", { index: 9, kind: 'dummy' }, []],
] as const)('deletes the bond of a claim: %s', async (_, link, expected) => {
  const deleted: number[] = [];
  const isNamed = 'alias' in link;
  const connection = {
    links: async () => [{ index: 3, name: 'eth0', kind: 'veth' }, ...(isNamed ? [link] : [])],
    link: async ({ name = '' }) => (!isNamed && /^netdra-[0-9a-f]{8}$/.test(name) ? { ...link, name } : undefined),
    deleteLink: async (index: number) => void deleted.push(index),
  };
  await deleteBond(connection as unknown as LinkConnection, alias);
  expect(deleted).toEqual(expected);
});
