import { describe, expect, it } from 'vitest';
import { explain } from '../../../src/lib/errors.ts';

describe('explain()', () => {
  it('ends where a cause leads back to an error before it', () => {
    const first = new Error('first');
    const second = new Error('second', { cause: first });
    first.cause = second;
    expect(explain(second)).toBe('second: first');
  });

  it.each([new Error(''), new Error(' '), undefined, null, '', Object.create(null)])(
    'returns a text that is never empty: %o',
    (error) => {
      expect(explain(error).trim()).not.toBe('');
    },
  );
});
