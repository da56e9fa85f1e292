import { expect, it } from 'vitest';
import { findDifferences } from '../../../../src/driver/vf/claim-differences.ts';
import type { NetworkNamespace } from '../../../../src/driver/vf/networks.ts';

it.each([
  ['none', undefined],
  ['none', { kind: 'bridge', name: 'red' }],
  ['blue with table 10', { kind: 'vrf', name: 'blue', vrfTable: 10 }],
  ['red with table 11', { kind: 'vrf', name: 'red', vrfTable: 11 }],
  [undefined, { kind: 'vrf', name: 'red', vrfTable: 10 }],
])('findDifferences reports %s in place of the VRF of the claim', async (found, master) => {
  const own = { index: 1, name: 'net1', ...(master && { master: 9 }) };
  const connection = { link: async ({ index }: { index?: number }) => (index === 9 ? master : own) };
  const namespace = { connection, readSysctls: () => new Map() } as unknown as NetworkNamespace;
  expect(await findDifferences(namespace, 'net1', { vrf: { name: 'red', table: 10 } })).toEqual(
    found === undefined ? [] : [{ setting: 'vrf', wanted: 'red with table 10', found }],
  );
});

it('findDifferences ignores an offload limit that the kernel does not report', async () => {
  const link = { index: 1, name: 'net1', mtuBytes: 1500, offloadLimits: { gsoMaxBytes: 65_536, groMaxBytes: 32_768 } };
  const connection = { link: async () => link };
  const namespace = { connection, readSysctls: () => new Map() } as unknown as NetworkNamespace;
  const offloadLimits = { gsoMaxBytes: 32_768, groMaxBytes: 32_768, gsoMaxBytesIpv4: 32_768 };
  expect(await findDifferences(namespace, 'net1', { offloadLimits })).toEqual([
    { setting: 'offloadLimits', wanted: 'gsoMaxBytes=32768', found: 'gsoMaxBytes=65536' },
  ]);
});
