import { describe, expect, it } from 'vitest';
import type { BondConfig } from '../../../../src/driver/model/index.ts';
import { joinBond } from '../../../../src/driver/vf/bonds.ts';
import { linkToCreate } from '../../../../src/driver/vf/created-links.ts';
import type { LinkConnection } from '../../../../src/driver/vf/networks.ts';
import type { Link } from '../../../../src/node/netlink/index.ts';

const created = linkToCreate('bond', 'claim-uid', 'bond0');
const { alias } = created;

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
  [
    { name: 'bond0', mode: 'balance-alb', primary: 'right', primaryReselect: 'failure' },
    { mode: 'balance-alb', miimonMs: 100, primaryReselect: 'failure' },
  ],
] as [BondConfig, object][])('joining a bond creates the bond that the claim requests: %j', async (bond, expected) => {
  const made: object[] = [];
  const connection = {
    links: async () => [],
    link: async ({ index }: { index?: number }) =>
      made.length > 0 || index === 9 ? { index: 9, kind: 'bond', mtuBytes: 1500 } : undefined,
    createBond: async (options: object) => void made.push(options),
    setLink: async () => undefined,
  };
  await joinBond(connection as unknown as LinkConnection, { index: 3, mtuBytes: 1500 } as Link, created, {
    config: { bond },
    request: 'left',
  });
  expect(made).toEqual([{ name: expect.stringMatching(/^netdra-/), mtuBytes: 1500, ...expected }]);
});

it('joining completes a bond that a killed driver left unfinished, and sets the MAC of the claim', async () => {
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
  const joined = await joinBond(connection as unknown as LinkConnection, member, created, { config, request: 'left' });
  expect(joined).toMatchObject({ index: 9, name: 'bond0', alias });
  expect(changes).toEqual([
    [9, { name: 'bond0', alias }],
    [5, { up: false, hardwareAddress: macAddress }],
    [5, { master: 9 }],
  ]);
});

describe('the primary member of a bond', () => {
  const bond = { index: 9, name: 'bond0', kind: 'bond', mtuBytes: 1500, alias };
  const link = { index: 5, name: 'net1', master: 9, mtuBytes: 1500 } as unknown as Link;

  it.each([
    ['left', undefined, [[9, { primaryMember: 5 }]]],
    ['left', 4, [[9, { primaryMember: 5 }]]],
    ['left/first', undefined, [[9, { primaryMember: 5 }]]],
    ['left', 5, []],
    ['right', undefined, []],
  ])(
    'is the VF that the claim names: a VF of request %s joins, the current primary is %j',
    async (request, primaryMember, expected) => {
      const changes: unknown[] = [];
      const connection = {
        link: async () => ({ ...bond, primaryMember }),
        setLink: async (...change: unknown[]) => void changes.push(change),
      } as unknown as LinkConnection;
      await joinBond(connection, link, created, { config: { bond: { name: 'bond0', primary: 'left' } }, request });
      expect(changes).toEqual(expected);
    },
  );

  it('is not set in a bond that the pod has made', async () => {
    const changes: unknown[] = [];
    const connection = {
      link: async () => ({ ...bond, alias: undefined }),
      setLink: async (...change: unknown[]) => void changes.push(change),
    } as unknown as LinkConnection;
    const config = { bond: { name: 'bond0', primary: 'left' } };
    await joinBond(connection, link, created, { config, request: 'left' });
    expect(changes).toEqual([]);
  });
});
