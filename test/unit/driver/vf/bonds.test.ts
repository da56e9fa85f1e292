import { expect, it } from 'vitest';
import { type BondConfig, bondAlias, deleteBond, joinBond } from '../../../../src/driver/vf/bonds.ts';
import type { LinkConnection } from '../../../../src/driver/vf/networks.ts';
import type { Link } from '../../../../src/node/netlink/index.ts';

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

it.each([
  [{ name: 'bond0' }, { mode: 'active-backup', miimonMs: 100, failOverMac: 'active' }],
  [
    { name: 'bond0', arpInterval: 500, arpTargets: ['192.0.2.1'] },
    { mode: 'active-backup', arpIntervalMs: 500, arpTargets: ['192.0.2.1'], failOverMac: 'active' },
  ],
  [
    { name: 'bond0', mode: '802.3ad', miimon: 50, lacpRate: 'fast', xmitHashPolicy: 'layer3+4' },
    { mode: '802.3ad', miimonMs: 50, lacpRate: 'fast', xmitHashPolicy: 'layer3+4' },
  ],
] as [BondConfig, object][])('makes the bond that a claim asks for: %j', async (bond, expected) => {
  const made: object[] = [];
  const connection = {
    links: async () => [],
    link: async ({ index }: { index?: number }) =>
      made.length > 0 || index === 9 ? { index: 9, mtuBytes: 1500 } : undefined,
    createBond: async (options: object) => void made.push(options),
    setLink: async () => undefined,
  };
  await joinBond(connection as unknown as LinkConnection, { index: 3, mtuBytes: 1500 } as Link, alias, { bond });
  expect(made).toEqual([{ name: expect.stringMatching(/^netdra-/), mtuBytes: 1500, ...expected }]);
});

it('completes a bond that was made before the driver was killed, and gives its member the MAC of the claim', async () => {
  const changes: unknown[] = [];
  const unfinished = { index: 9, name: 'netdra-1a2b3c4d', kind: 'bond', mtuBytes: 1500 };
  const connection = {
    links: async () => [],
    link: async ({ name = '' }) => (name.startsWith('netdra-') ? unfinished : undefined),
    setLink: async (...change: unknown[]) => void changes.push(change),
  };
  const member = { index: 5, name: 'net1', hardwareAddress: '02:00:00:00:00:01', mtuBytes: 1500 } as unknown as Link;
  const macAddress = '02:00:00:00:00:0a';
  const config = { bond: { name: 'bond0' }, macAddress };
  const joined = await joinBond(connection as unknown as LinkConnection, member, alias, config);
  expect(joined).toMatchObject({ index: 9, name: 'bond0', alias });
  expect(changes).toEqual([
    [9, { name: 'bond0', alias }],
    [5, { up: false, hardwareAddress: macAddress }],
    [5, { master: 9 }],
  ]);
});
