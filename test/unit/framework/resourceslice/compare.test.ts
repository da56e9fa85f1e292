import { describe, expect, it } from 'vitest';
import { findDroppedFields, isSameSpec } from '../../../../src/framework/resourceslice/compare.ts';
import type { Device, SliceSpec } from '../../../../src/framework/resourceslice/model.ts';
import { testDriver, testNode } from '../../../doubles/objects.ts';

const spec = (...devices: Device[]): SliceSpec => ({
  driver: testDriver,
  nodeName: testNode,
  pool: { name: testNode, generation: 1, resourceSliceCount: 1 },
  devices,
});
const same = (actual: Partial<Device>, wanted: Partial<Device>) =>
  isSameSpec(spec({ name: 'vf', ...actual }), spec({ name: 'vf', ...wanted }));
const taint = (timeAdded?: string, effect: 'None' | 'NoExecute' = 'None') => ({
  taints: [{ key: 'down', effect, ...(timeAdded === undefined ? {} : { timeAdded }) }],
});

describe('isSameSpec', () => {
  it("ignores differences that come only from the server's formatting", () => {
    expect(same({}, { taints: [], attributes: {}, capacity: {}, allowMultipleAllocations: false })).toBe(true);
    expect(same({ capacity: { m: { value: '1Gi' } } }, { capacity: { m: { value: '1024Mi' } } })).toBe(true);
    const consumes = (value: string) => ({ consumesCounters: [{ counterSet: '1', counters: { vfs: { value } } }] });
    expect(same(consumes('1'), consumes('1000m'))).toBe(true);
  });

  it('detects changed devices', () => {
    expect(same({ attributes: { a: { int: 1 } } }, {})).toBe(false);
    expect(same({}, { attributes: { a: { bool: false } } })).toBe(false);
    expect(same({ attributes: { a: { string: '' } } }, { attributes: { a: { bool: false } } })).toBe(false);
    // Attributes are texts, not quantities.
    expect(same({ attributes: { a: { string: '1' } } }, { attributes: { a: { string: '1000m' } } })).toBe(false);
    expect(same({ capacity: { m: { value: '1G' } } }, { capacity: { m: { value: '1Gi' } } })).toBe(false);
    expect(isSameSpec(spec({ name: 'a' }, { name: 'b' }), spec({ name: 'b' }, { name: 'a' }))).toBe(false);
    const consumes = (counterSet: string) => ({
      consumesCounters: [{ counterSet, counters: { vfs: { value: '1' } } }],
    });
    expect(same(consumes('1'), consumes('1000m'))).toBe(false);
  });

  it('compares times of taints to the second, and only if the driver sets them', () => {
    const at = '2026-05-01T10:00:00Z';
    expect(same(taint(at), taint())).toBe(true);
    expect(same(taint(at), taint('2026-05-01T10:00:00.900Z'))).toBe(true);
    expect(same(taint(at), taint('2026-05-01T10:00:02Z'))).toBe(false);
    expect(same(taint(at), taint(undefined, 'NoExecute'))).toBe(false);
    expect(same(taint(at), {})).toBe(false);
  });
});

describe('findDroppedFields', () => {
  const find = (sent: Partial<Device>, stored: Partial<Device>) =>
    findDroppedFields(spec({ name: 'vf', ...sent }), spec({ name: 'vf', ...stored })).map(
      ({ device, field }) => `${device} ${field}`,
    );

  it('names fields that the server dropped', () => {
    expect(find(taint(), {})).toEqual(['vf taints']);
    expect(find({ attributes: { a: { ints: [1] }, b: { int: 1 } } }, { attributes: { a: {}, b: { int: 1 } } })).toEqual(
      ['vf attributes.a.ints'],
    );
    expect(find({ allowMultipleAllocations: true }, {})).toEqual(['vf allowMultipleAllocations']);
  });

  it('ignores fields that the server added or formatted differently', () => {
    expect(find(taint(), taint('2026-05-01T10:00:00Z'))).toEqual([]);
    expect(find({ capacity: { m: { value: '1024Mi' } }, taints: [] }, { capacity: { m: { value: '1Gi' } } })).toEqual(
      [],
    );
  });

  it('detects counters dropped from both slices and devices', () => {
    const sharedCounters = [{ name: 'pf0', counters: { vfs: { value: '8' } } }];
    expect(findDroppedFields({ ...spec(), sharedCounters }, spec())).toMatchObject([{ field: 'sharedCounters' }]);
  });
});
