import { describe, expect, it } from 'vitest';
import { isDnsSubdomain } from '../../../../src/framework/resourceslice/names.ts';
import { sliceName } from '../../../../src/framework/resourceslice/slice-name.ts';

const place = (pool: string, nodeName = 'node-1') => ({ nodeName, driver: 'sriov.netdra.dev', pool });

describe('sliceName', () => {
  it('differs between nodes, drivers and pools', () => {
    expect(sliceName(place('node-1'), 3)).toBe('node-1-sriov.netdra.dev-0003');
    const others = ['spare', 'node-1/spare', 'Spare'].map((pool) => sliceName(place(pool), 0));
    expect(new Set(others).size).toBe(3);
    for (const name of others) expect(name).toMatch(/^node-1-sriov\.netdra\.dev-[0-9a-f]{8}-0000$/);
  });

  it('differs even if the end of a node name moves to the start of the driver name', () => {
    const names = (pool: (nodeName: string) => string) => [
      sliceName({ nodeName: 'n', driver: 'a-b-c.com', pool: pool('n') }, 0),
      sliceName({ nodeName: 'n-a', driver: 'b-c.com', pool: pool('n-a') }, 0),
      sliceName({ nodeName: 'n-a-b', driver: 'c.com', pool: pool('n-a-b') }, 0),
    ];
    expect(new Set(names((nodeName) => nodeName)).size).toBe(3);
    expect(new Set(names(() => 'spare')).size).toBe(3);
  });

  it('sorts alphabetically in the order of slice numbers', () => {
    const names = Array.from({ length: 120 }, (_, index) => sliceName(place('node-1'), index));
    expect([...names].sort()).toEqual(names);
  });

  it.each([200, 232, 233, 240, 250, 253])('is a valid name for a node with %i characters', (length) => {
    for (const character of ['a', '.']) {
      const nodeName = `${'x.'.repeat(126)}x`.slice(0, length - 1).replace(/\.$/, 'y') + character.replace('.', 'z');
      const names = [0, 1].map((index) => sliceName(place(nodeName, nodeName), index));
      for (const name of names) expect(isDnsSubdomain(name), name).toBe(true);
      expect(new Set(names).size).toBe(2);
    }
  });

  it('distinguishes long node names with a common prefix', () => {
    const [left, right] = ['a', 'b'].map((end) => sliceName(place(`n${'.x'.repeat(124)}.${end}`), 0));
    expect(left).not.toBe(right);
  });
});
