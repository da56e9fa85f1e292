import { describe, expect, it } from 'vitest';
import { SyncParts } from '../../../nri/sync-parts.ts';
import { createNriCodec } from '../../../nri/wire.ts';

const codec = createNriCodec().synchronizeRequest;
const encode = (pods: number, containers: number) =>
  codec.encode({ pods: Array(pods).fill({ id: 'p' }), containers: Array(containers).fill({ id: 'c' }), more: true });
const exhausted = expect.objectContaining({ status: 8 });

describe('SyncParts', () => {
  it('joins the parts in order, and starts a new list after the last part', () => {
    const parts = new SyncParts({ bytes: 1000, entries: 10 });
    expect(parts.add({ pods: [{ id: 'a' }], more: true })).toBeUndefined();
    expect(parts.add({ pods: [{ id: 'b' }], containers: [{ id: 'x' }], more: true })).toBeUndefined();
    expect(parts.add({ containers: [{ id: 'y' }] })).toEqual({
      pods: [{ id: 'a' }, { id: 'b' }],
      containers: [{ id: 'x' }, { id: 'y' }],
    });
    expect(parts.add({})).toEqual({ pods: [], containers: [] });
  });

  it('rejects more bytes than the limit, and then drops all parts', () => {
    const parts = new SyncParts({ bytes: 25, entries: 10 });
    parts.reserve(Buffer.alloc(20));
    parts.add({ pods: [{ id: 'a' }], more: true });
    expect(() => parts.reserve(Buffer.alloc(6))).toThrow(exhausted);
    parts.reserve(Buffer.alloc(25));
    expect(parts.add({ pods: [{ id: 'c' }] })).toEqual({ pods: [{ id: 'c' }], containers: [] });
  });

  it('rejects more pods and containers than the limit before it decodes them', () => {
    const parts = new SyncParts({ bytes: 1000, entries: 10 });
    parts.reserve(encode(4, 3));
    expect(() => parts.reserve(encode(2, 2))).toThrow(exhausted);
    parts.reserve(encode(9, 1));
    expect(() => parts.reserve(encode(0, 1))).toThrow(exhausted);
  });

  it.each(['ff', '0a', '0affffffffff', '0b0a00', 'ffffffffffffffffffffffff0a00'])(
    'counts the entries of the invalid message %s without failing',
    (hex) => {
      new SyncParts({ bytes: 1000, entries: 10 }).reserve(Buffer.from(hex, 'hex'));
    },
  );
});
