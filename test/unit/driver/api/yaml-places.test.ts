import * as yaml from 'js-yaml';
import { describe, expect, it } from 'vitest';
import { yamlPlaces } from '../../../../src/driver/api/yaml-places.ts';

describe('yamlPlaces', () => {
  it('locates fields and items of each document, and the parents of missing fields', () => {
    const text = 'a:\n  - b: 1\n  - {c: [x, y]}\n---\n- *z\n- ? [k]\n  : v\n'.replace('*z', '&z q');
    const [first, second] = yamlPlaces(text, yaml);
    expect(first?.(['a'])).toEqual({ line: 1, column: 1 });
    expect(first?.(['a', 0, 'b'])).toEqual({ line: 2, column: 5 });
    expect(first?.(['a', 1, 'c', 1])).toEqual({ line: 3, column: 13 });
    expect(first?.(['a', 1, 'missing', 'deep'])).toEqual({ line: 3, column: 5 });
    expect(second?.([1])).toMatchObject({ line: 6 });
    expect(second?.([9])).toEqual(second?.([]));
  });

  it('locates many fields in a long text', () => {
    const count = 20_000;
    const text = `items:\n${'- name: some text to make the document long\n'.repeat(count)}`;
    const [placeOf] = yamlPlaces(text, yaml);
    const lines = Array.from({ length: count }, (_, index) => placeOf?.(['items', index, 'name']).line);
    expect(lines).toEqual(Array.from({ length: count }, (_, index) => index + 2));
  });
});
