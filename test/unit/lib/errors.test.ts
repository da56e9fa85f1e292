import { describe, expect, it } from 'vitest';
import { explain } from '../../../src/lib/errors.ts';

describe('explain()', () => {
  it('stops at a cyclic cause', () => {
    const first = new Error('first');
    const second = new Error('second', { cause: first });
    first.cause = second;
    expect(explain(second)).toBe('second: first');
  });

  it.each([new Error(''), new Error(' '), undefined, null, '', Object.create(null)])(
    'never returns an empty text: %o',
    (error) => {
      expect(explain(error).trim()).not.toBe('');
    },
  );
});
