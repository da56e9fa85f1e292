import { describe, expect, it } from 'vitest';
import { SyncParts } from '../../../nri/sync-parts.ts';

describe('SyncParts', () => {
  it('joins the parts in order and starts anew after the last one', () => {
    const parts = new SyncParts(1000);
    expect(parts.add({ pods: [{ id: 'a' }], more: true }, 10)).toBeUndefined();
    expect(parts.add({ pods: [{ id: 'b' }], containers: [{ id: 'x' }], more: true }, 10)).toBeUndefined();
    expect(parts.add({ containers: [{ id: 'y' }] }, 10)).toEqual({
      pods: [{ id: 'a' }, { id: 'b' }],
      containers: [{ id: 'x' }, { id: 'y' }],
    });
    expect(parts.add({}, 0)).toEqual({ pods: [], containers: [] });
  });

  it('refuses more than it may hold and keeps nothing of it', () => {
    const parts = new SyncParts(25);
    parts.add({ pods: [{ id: 'a' }], more: true }, 20);
    expect(() => parts.add({ pods: [{ id: 'b' }] }, 6)).toThrow(expect.objectContaining({ status: 8 }));
    expect(parts.add({ pods: [{ id: 'c' }] }, 25)).toEqual({ pods: [{ id: 'c' }], containers: [] });
  });
});
