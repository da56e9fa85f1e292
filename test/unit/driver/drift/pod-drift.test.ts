import { describe, expect, it } from 'vitest';
import { describeDrift } from '../../../../src/driver/drift/drift.ts';
import { podDriftOf } from '../../../../src/driver/drift/index.ts';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';
import { DriftBench } from './drift-bench.ts';

const config = { macAddress: '02:AA:00:00:00:01', mtu: 9000, addresses: ['192.0.2.10/24', '2001:DB8::10/64'] };
const asAsked = {
  interfaceName: 'net1',
  hardwareAddress: '02:aa:00:00:00:01',
  mtuBytes: 9000,
  linkUp: true,
  ips: ['192.0.2.10/24', '2001:db8::10/64'],
  tentative: false,
};
const device = (more: Partial<StoredDevice['config']> = {}): StoredDevice =>
  storedDevice({ pciAddress: '0000:01:10.0', name: 'vf0', config: { ...config, ...more } });

describe('podDriftOf', () => {
  it('finds no difference between equal settings in different notations, and ignores settings that the claim lacks', () => {
    expect(podDriftOf(device(), asAsked)).toEqual([]);
    const more = { ...asAsked, ips: [...asAsked.ips, '198.51.100.1/24'] };
    expect(podDriftOf(device(), more)).toEqual([]);
    expect(podDriftOf({ ...device(), config: {} }, { ...asAsked, mtuBytes: 1 })).toEqual([]);
  });

  it('names each differing setting with its wanted and actual value', () => {
    const changed = { ...asAsked, hardwareAddress: '02:aa:00:00:00:99', mtuBytes: 1400, ips: ['192.0.2.10/24'] };
    expect(podDriftOf(device(), changed)).toEqual([
      { setting: 'macAddress', wanted: '02:aa:00:00:00:01', found: '02:aa:00:00:00:99' },
      { setting: 'mtu', wanted: '9000', found: '1400' },
      { setting: 'addresses', wanted: '2001:db8::10/64', found: 'missing' },
    ]);
  });

  it('names missing routes and changed kernel settings', () => {
    const differences = [
      { setting: 'routes' as const, wanted: '198.51.100.0/24, 203.0.113.0/24', found: 'missing' },
      { setting: 'sysctls' as const, wanted: 'accept_ra=0', found: 'accept_ra=2' },
    ];
    const drifts = podDriftOf(device(), { ...asAsked, mtuBytes: 1400, differences });
    expect(describeDrift(drifts)).toBe(
      'mtu is 1400 instead of 9000, routes is missing instead of 198.51.100.0/24, 203.0.113.0/24, sysctls is accept_ra=2 instead of accept_ra=0',
    );
    expect(podDriftOf(device(), { ...asAsked, differences: [] })).toEqual([]);
  });

  it.each([
    ['while duplicate address detection is under way', {}, { tentative: true }],
    ['that may be among the addresses beyond the reading limit', {}, { ips: Array(16).fill('203.0.113.1/24') }],
    [
      'of a bond member, whose MAC the bond chooses',
      { bond: { name: 'bond0' } },
      { hardwareAddress: '02:00:00:00:00:07', ips: asAsked.ips },
    ],
    ['that a CNI plugin configures', { attach: 'cni' as const }, { mtuBytes: 1 }],
  ])('reports no drift of a setting %s', (_when, more, state) => {
    const found = podDriftOf(device(more), { ...asAsked, ips: [], ...state });
    expect(found).toEqual([]);
  });
});

it('DriftReport.podCompared reports a drift by one event and a condition, and leaves the device healthy', async () => {
  using bench = new DriftBench();
  const vf = await bench.prepare(0, {});
  const [claim] = bench.store.claims();
  const drifts = [{ setting: 'mtu' as const, wanted: '9000', found: '1400' }];
  for (let reads = 0; reads < 3; reads++) bench.report.podCompared(claim!, vf, drifts);
  expect(bench.events.map((event) => event.split(':')[0])).toEqual([
    'SettingsChanged ResourceClaim c0',
    'SettingsChanged Pod app',
  ]);
  expect(bench.counts).toEqual(['mtu reported']);
  expect(bench.record.lost()).toEqual([]);
  expect(bench.record.conditionOf('u0', 'vf0')).toMatchObject({
    status: 'False',
    reason: 'SettingsChanged',
    message: expect.stringContaining('mtu is 1400 instead of 9000'),
  });
  bench.report.podCompared(claim!, vf, []);
  expect(bench.record.conditionOf('u0', 'vf0')).toMatchObject({ status: 'True', reason: 'AsRequested' });
  bench.store.deleteClaim('u0');
  bench.record.retain(bench.store.claims());
  expect(bench.record.conditionOf('u0', 'vf0')).toBeUndefined();
});
