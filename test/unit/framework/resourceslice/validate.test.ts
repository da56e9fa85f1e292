import { describe, expect, it } from 'vitest';
import { formatProblems } from '../../../../src/framework/resourceslice/errors.ts';
import type { Device, Pool } from '../../../../src/framework/resourceslice/index.ts';
import { validatePool } from '../../../../src/framework/resourceslice/validate.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';
import { devices, onePool, startBench } from './bench.ts';
import { badDevices, counters, fullDevice, many, sharedCounters } from './device-table.ts';

const check = (pool: Partial<Pool>, name = testNode) => validatePool(name, { devices: [], ...pool }, testDriver);
const checkDevice = (device: Partial<Device>, pool: Partial<Pool> = {}) =>
  check({ devices: [{ name: 'vf', ...device }], ...pool });

describe('validatePool', () => {
  it.each(badDevices)('names device and field: %s', (_, device, message) => {
    const problems = checkDevice(device, { sharedCounters });
    expect(problems).toHaveLength(1);
    expect(formatProblems(problems)).toContain(message);
  });

  it.each<[string, Partial<Pool>, string]>([
    ['no devices', { devices: undefined as unknown as Device[] }, 'devices must be a list'],
    ['a device that is null', { devices: [null as unknown as Device] }, 'devices must be a list of objects'],
    [
      'a device that occurs twice',
      { devices: [...devices(2), ...devices(1)] },
      'device dev-0: name occurs twice in the pool',
    ],
    ['an invalid generation', { generation: 0 }, 'generation 0 must be 1 or more'],
    ['an invalid slice size', { maxDevicesPerSlice: 129 }, 'maxDevicesPerSlice 129 must be 1 to 128 for these devices'],
    [
      'a slice size that is too large for taints',
      { devices: devices(1, { taints: [{ key: 'a', effect: 'None' }] }), maxDevicesPerSlice: 100 },
      'maxDevicesPerSlice 100 must be 1 to 64 for these devices',
    ],
    [
      'an invalid name of a counter set',
      { sharedCounters: [{ name: 'PF', counters: counters(1) }] },
      'sharedCounters "PF" must be a DNS label',
    ],
    [
      'a counter set that occurs twice',
      { sharedCounters: many(2, () => ({ name: 'pf', counters: counters(1) })) },
      'sharedCounters[pf] occurs twice in the pool',
    ],
    [
      'too many counters',
      { sharedCounters: [{ name: 'pf', counters: counters(33) }] },
      'sharedCounters[pf].counters has 33 entries, at most 32 are allowed',
    ],
  ])('names the field of a pool: %s', (_, pool, message) => {
    const problems = check(pool);
    expect(problems).toHaveLength(1);
    expect(formatProblems(problems)).toContain(message);
  });

  it('rejects an invalid pool name', () => {
    expect(formatProblems(check({}, 'Node 1'))).toContain('name "Node 1" must be DNS subdomains joined by "/"');
    expect(check({}, 'node-1.example.com/rack-7')).toEqual([]);
  });

  it('lists the first five of many problems', () => {
    const text = formatProblems(check({ devices: devices(9, { attributes: { a: {} } }) }));
    expect(text.match(/device dev-/g)).toHaveLength(5);
    expect(text).toMatch(/; and 4 more$/);
  });

  it('accepts values exactly at the limits, and the pool can be cut into slices', async () => {
    const pool = { devices: [fullDevice, ...devices(63)], sharedCounters, maxDevicesPerSlice: 64 };
    expect(check(pool)).toEqual([]);
    await using bench = await startBench();
    const publisher = bench.start();
    expect(await bench.settle(() => publisher.publish(onePool(pool)))).toHaveLength(4);
    expect(bench.errors).toEqual([]);
    expect(bench.slices().map(({ spec }) => [spec.sharedCounters?.length, spec.devices?.length])).toEqual([
      [8, undefined],
      [8, undefined],
      [4, undefined],
      [undefined, 64],
    ]);
  });
});
