import { describe, expect, it, vi } from 'vitest';
import { deviceHealth } from '../../../../src/driver/devices/device-health.ts';
import { reportDevices, reportHealth } from '../../../../src/driver/devices/device-report.ts';
import type { StoredClaim } from '../../../../src/driver/model/index.ts';
import type { Device, ResourceSlice } from '../../../../src/framework/resourceslice/index.ts';
import { planPool } from '../../../../src/framework/resourceslice/pool-plan.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { storedClaim } from '../../../doubles/stored-claims.ts';

/** A claim that holds devices of a pool. */
function claimOf(pool: string, ...names: string[]): StoredClaim {
  const identity = { namespace: 'default', name: 'c', uid: 'u' };
  const devices = names.map((name) => ({ pool, name }) as StoredClaim['devices'][number]);
  return storedClaim({ identity, devices });
}

describe('deviceHealth', () => {
  it('includes every device found, allocated or not', () => {
    expect(deviceHealth('node-1', ['a', 'b'], [claimOf('node-1', 'b')])).toEqual([
      { poolName: 'node-1', deviceName: 'a', health: 'healthy' },
      { poolName: 'node-1', deviceName: 'b', health: 'healthy' },
    ]);
  });

  it('names every fault of a device', () => {
    const conditions = ['PF ens1f0 has no carrier: check its cable', 'the kernel does not return from a write'];
    const unhealthy = new Map([
      ['b', conditions.map((message) => ({ name: 'hung' as const, effect: 'NoSchedule' as const, message }))],
    ]);
    expect(deviceHealth('node-1', ['a', 'b'], [claimOf('node-1', 'b')], unhealthy)).toEqual([
      { poolName: 'node-1', deviceName: 'a', health: 'healthy' },
      { poolName: 'node-1', deviceName: 'b', health: 'unhealthy', message: conditions.join('; ') },
    ]);
  });

  it('reports a missing device that has claims as unhealthy, with the reason, and only once', () => {
    const claims = [claimOf('node-1', 'gone', 'gone'), claimOf('other-pool', 'not-ours')];
    expect(deviceHealth('node-1', [], claims)).toEqual([
      {
        poolName: 'node-1',
        deviceName: 'gone',
        health: 'unhealthy',
        message: expect.stringContaining('not found on the node any more'),
      },
    ]);
  });
});

it('reportDevices sends one complete list when one of 100 devices gets a taint', () => {
  const scannedAt = new Date(7);
  const offered: Device[] = Array.from({ length: 100 }, (_, index) => ({ name: `d-${index}`, attributes: {} }));
  const [publish, setHealth] = [vi.fn(), vi.fn()];
  const known = {
    policyFault: undefined,
    state: { hungWrites: [], keepsTaints: true, conditions: [] },
  };
  const parts = {
    devices: {
      ...known,
      unhealthy: () => new Map(),
      cardConditions: () => [],
      isListed: true,
      failure: undefined,
      offered: () => offered,
      sharedCounters: () => [],
      scannedAt,
    },
    store: { claims: () => [], unrestored: () => [] },
    events: {
      devicesFound: vi.fn(),
      devicesHung: vi.fn(),
      devicesUnrestored: vi.fn(),
      policyRejected: vi.fn(),
      cardsUnhealthy: vi.fn(),
    },
    observer: { published: vi.fn(), reported: vi.fn() },
  };
  const options = {
    node: testNode,
    ...parts,
    publisher: { publish },
    kubelet: { setHealth },
  };
  const planned = (actual: ResourceSlice[]) => {
    reportDevices(options);
    const pool = publish.mock.lastCall?.[0].pools[testNode];
    return planPool({
      driver: testDriver,
      nodeName: testNode,
      poolName: testNode,
      pool,
      actual,
      published: undefined,
    });
  };
  const actual = planned([]).writes.map(({ name, spec }) => structuredClone({ metadata: { name }, spec }));
  expect(actual).toHaveLength(2);
  offered[3] = { name: 'd-3', attributes: {}, taints: [{ key: 'netdra.dev/hung', effect: 'NoSchedule' }] };
  expect(planned(actual)).toMatchObject({ writes: [{ name: actual[0]?.metadata.name }], generation: 1 });
  reportHealth(options);
  const health = { health: 'healthy', checkedAt: scannedAt, timeoutSeconds: 90 };
  expect(setHealth.mock.lastCall?.[0][0]).toEqual({ poolName: testNode, deviceName: 'd-0', ...health });
});
