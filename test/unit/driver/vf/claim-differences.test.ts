import { expect, it } from 'vitest';
import { findDifferences } from '../../../../src/driver/vf/claim-differences.ts';
import type { NetworkNamespace } from '../../../../src/driver/vf/networks.ts';

it('findDifferences ignores an offload limit that the kernel does not report', async () => {
  const link = { index: 1, name: 'net1', mtuBytes: 1500, offloadLimits: { gsoMaxBytes: 65_536, groMaxBytes: 32_768 } };
  const connection = { link: async () => link };
  const namespace = { connection, readSysctls: () => new Map() } as unknown as NetworkNamespace;
  const offloadLimits = { gsoMaxBytes: 32_768, groMaxBytes: 32_768, gsoMaxBytesIpv4: 32_768 };
  expect(await findDifferences(namespace, 'net1', { offloadLimits })).toEqual([
    { setting: 'offloadLimits', wanted: 'gsoMaxBytes=32768', found: 'gsoMaxBytes=65536' },
  ]);
});
