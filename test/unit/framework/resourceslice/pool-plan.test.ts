import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { cutPool } from '../../../../src/framework/resourceslice/chunks.ts';
import type { Device, Pool, ResourceSlice } from '../../../../src/framework/resourceslice/index.ts';
import { type PublishedPool, planPool } from '../../../../src/framework/resourceslice/pool-plan.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';

/** Devices by number; the second number is what they are like. */
const deviceArbitrary = fc.tuple(fc.nat(11), fc.nat(2));
const poolArbitrary = fc
  .record({
    devices: fc.uniqueArray(deviceArbitrary, { selector: ([number]) => number, maxLength: 12 }),
    isSorted: fc.boolean(),
    counters: fc.nat(2),
    generation: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
  })
  .map(({ devices, isSorted, counters, generation }): Pool => {
    const ordered = isSorted ? devices.sort(([left], [right]) => left - right) : devices;
    return {
      devices: ordered.map(([number, kind]) => ({ name: `dev-${number}`, attributes: { kind: { int: kind } } })),
      sharedCounters: Array.from({ length: counters }, (_, n) => ({ name: `pf${n}`, counters: {} })),
      // Small, so that a dozen devices make several slices.
      maxDevicesPerSlice: 3,
      ...(generation === undefined ? {} : { generation }),
    };
  });
/** What happens between two looks: another pool is wanted, a slice goes, a slice is changed, the process starts anew. */
const eventArbitrary = fc.oneof(
  poolArbitrary.map((pool) => ({ pool })),
  fc.nat(9).map((removed) => ({ removed })),
  fc.nat(9).map((edited) => ({ edited })),
  fc.constant({ restart: true as const }),
);

/** What an API server would have after the plan. */
function carryOut(actual: ResourceSlice[], plan: ReturnType<typeof planPool>): ResourceSlice[] {
  const gone = new Set([...plan.obsolete.map(({ metadata }) => metadata.name), ...plan.writes.map(({ name }) => name)]);
  const kept = actual.filter(({ metadata }) => !gone.has(metadata.name));
  return [...kept, ...plan.writes.map(({ name, spec }) => structuredClone({ metadata: { name }, spec }))];
}

function planFor(pool: Pool, actual: ResourceSlice[], published: PublishedPool | undefined) {
  return planPool({ driver: testDriver, nodeName: testNode, poolName: testNode, pool, actual, published });
}

const capacityOf = (value: string) => ({ bandwidth: { value } });

const inOrder = (slices: ResourceSlice[]) =>
  slices.toSorted((left, right) => (left.metadata.name < right.metadata.name ? -1 : 1));

describe('planPool', () => {
  it('reaches the wanted devices in order from any state, and never decreases the generation', () => {
    fc.assert(
      fc.property(poolArbitrary, fc.array(eventArbitrary, { maxLength: 12 }), (first, events) => {
        let pool = first;
        let actual: ResourceSlice[] = [];
        let published: PublishedPool | undefined;
        for (const event of [{ pool }, ...events]) {
          if ('pool' in event) pool = event.pool;
          if ('restart' in event) published = undefined;
          if ('removed' in event) actual = actual.filter((_, index) => index !== event.removed % actual.length);
          const edited = 'edited' in event ? actual[event.edited % actual.length] : undefined;
          if (edited !== undefined) edited.spec.devices = [{ name: 'bogus' }];
          const newest = Math.max(0, ...actual.map(({ spec }) => spec.pool.generation));

          const plan = planFor(pool, actual, published);
          actual = carryOut(actual, plan);
          published = { generation: plan.generation, contents: plan.contents, kept: new Map() };

          const slices = inOrder(actual);
          expect(slices.flatMap(({ spec }) => spec.devices ?? [])).toEqual(pool.devices);
          expect(slices.flatMap(({ spec }) => spec.sharedCounters ?? [])).toEqual(pool.sharedCounters);
          const pools = slices.map(({ spec }) => spec.pool);
          const expected = { name: testNode, generation: plan.generation, resourceSliceCount: slices.length };
          expect(pools).toEqual(slices.map(() => expected));
          expect(plan.generation).toBeGreaterThanOrEqual(Math.max(newest, pool.generation ?? 1));
          // Counters and devices in slices of their own, no more of them than there must be.
          expect(slices.filter(({ spec }) => spec.devices !== undefined && spec.sharedCounters !== undefined)).toEqual(
            [],
          );
          const needed = Math.ceil(pool.devices.length / 3) + (pool.sharedCounters?.length === 0 ? 0 : 1);
          expect(slices).toHaveLength(Math.max(1, needed));
          expect(Math.max(...slices.map(({ spec }) => spec.devices?.length ?? 0))).toBeLessThanOrEqual(3);
          expect(planFor(pool, actual, published).writes).toEqual([]);
          // A new process finds nothing to do either.
          const again = planFor(pool, actual, undefined);
          expect([again.writes, again.obsolete]).toEqual([[], []]);
        }
      }),
    );
  });

  it('keeps the generation only if at most one slice changes', () => {
    fc.assert(
      fc.property(poolArbitrary, poolArbitrary, (before, after) => {
        const first = planFor(before, [], undefined);
        const actual = carryOut([], first);
        const published = { generation: first.generation, contents: first.contents, kept: new Map() };
        const plan = planFor(after, actual, published);
        if (plan.generation === first.generation) expect(plan.writes.length).toBeLessThanOrEqual(1);
        else expect(plan.writes).toHaveLength(plan.contents.length);
      }),
    );
  });

  it('keeps the generation when only taints change, since each device stays in its slice', () => {
    const pool = (tainted: string, names = 'abcdefghi') => ({
      devices: [...names].map((name) => {
        const taints = [{ key: 'netdra.dev/no-carrier', effect: 'NoSchedule' as const }];
        return tainted.includes(name) ? { name, taints } : { name };
      }),
      maxDevicesPerSlice: 3,
    });
    const first = planFor(pool(''), [], undefined);
    const actual = carryOut([], first);
    const written = (after: Pool) => {
      const { generation, writes } = planFor(after, actual, undefined);
      return [generation, ...writes.map(({ spec }) => spec.devices?.map(({ name }) => name).join(''))];
    };
    expect(written(pool('abef'))).toEqual([1, 'abc', 'def']);
    // With one other change, too, but not with two.
    expect(written(pool('ab', 'abcdegh'))).toEqual([2, 'abc', 'de', 'gh']);
    expect(written(pool('ab', 'abcdeghi'))).toEqual([1, 'abc', 'de']);
  });

  it.each<[string, (device: Device) => void]>([
    ['writes quantities in another way', (device) => Object.assign(device, { capacity: capacityOf('1G') })],
    ['drops a field', (device) => delete device.bindsToNode],
  ])('keeps the generation even if the server %s', (_what, store) => {
    const pool = (tainted: string): Pool => ({
      devices: [...'abcdef'].map((name) => {
        const taints = [{ key: 'netdra.dev/no-carrier', effect: 'NoSchedule' as const }];
        const device = { name, capacity: capacityOf('1000M'), bindsToNode: true };
        return tainted.includes(name) ? { ...device, taints } : device;
      }),
      maxDevicesPerSlice: 3,
    });
    const first = planFor(pool(''), [], undefined);
    const actual = carryOut([], first);
    for (const device of actual.flatMap(({ spec }) => spec.devices ?? [])) store(device);
    const kept = new Map(
      first.writes.map(({ name, spec: sent }, index) => [name, { sent, stored: actual[index]!.spec }]),
    );
    const after = planFor(pool('abef'), actual, { generation: 1, contents: first.contents, kept });
    expect([after.generation, after.writes.length]).toEqual([1, 2]);
  });
});

describe('cutPool', () => {
  const names = (chunks: { devices?: Device[] }[]) =>
    chunks.map(({ devices = [] }) => devices.map(({ name }) => name).join(''));
  const pool = (text: string) => ({ devices: [...text].map((name) => ({ name })), maxDevicesPerSlice: 3 });
  const cut = (wanted: string, ...published: string[]) => names(cutPool(pool(wanted), published.map(pool)));

  it.each<[string, string, string[], string[]]>([
    ['puts new devices into full slices', 'abcdefgh', [], ['abc', 'def', 'gh']],
    ['leaves devices in their slices when one is removed', 'acdefgh', ['abc', 'def', 'gh'], ['ac', 'def', 'gh']],
    ['puts a new device beside the device before it', 'aXcdefgh', ['ac', 'def', 'gh'], ['aXc', 'def', 'gh']],
    ['puts a new device into the next slice if there is room', 'abcXgh', ['abc', 'gh'], ['abc', 'Xgh']],
    [
      'cuts the pool again instead of adding a slice that is not needed',
      'abcXdef',
      ['abc', 'def'],
      ['abc', 'Xde', 'f'],
    ],
    ['cuts the pool again when one slice less is enough', 'abdefg', ['abc', 'def', 'g'], ['abd', 'efg']],
    ['cuts the pool again when the order of devices changes', 'fabcde', ['abc', 'def'], ['fab', 'cde']],
    ['adds new devices at the end', 'abcdefX', ['abc', 'def'], ['abc', 'def', 'X']],
    ['cuts the pool again instead of exceeding the size of a slice', '0abcdefg', ['', 'ag'], ['0ab', 'cde', 'fg']],
    ['makes one empty slice for a pool without devices', '', ['abc'], ['']],
  ])('%s', (_, wanted, published, expected) => {
    expect(cut(wanted, ...published)).toEqual(expected);
  });
});
