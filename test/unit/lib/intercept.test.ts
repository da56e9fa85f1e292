import { describe, expect, it } from 'vitest';
import { intercept } from '../../../src/lib/intercept.ts';

class Counter {
  #count = 0;
  add(by: number) {
    this.#count += by;
    return this.#count;
  }
}

class Doubler extends Counter {
  override add(by: number) {
    return super.add(2 * by);
  }
  reset?(): void;
}

describe('intercept', () => {
  it('passes each call of a method through the interceptor once, with the object as receiver', () => {
    const seen: unknown[] = [];
    const counter = intercept(new Doubler(), ({ name, args, next }) => {
      seen.push(name, args);
      return next();
    });
    expect([counter.add(1), counter.add(2)]).toEqual([2, 6]);
    expect(seen).toEqual(['add', [1], 'add', [2]]);
  });

  it('adds no method that the object lacks', () => {
    expect(Object.keys(intercept(new Doubler(), ({ next }) => next()))).toEqual(['add']);
  });

  it('lets the interceptor return a different result', () => {
    expect(intercept({ twice: (n: number) => 2 * n }, ({ args: [n] }) => n + 1).twice(5)).toBe(6);
  });
});
