import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Backlog } from '../../../src/lib/backlog.ts';

describe('Backlog', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  it('runs queued tasks one at a time after a second, and all remaining tasks at disposal', () => {
    const log: number[] = [];
    const backlog = new Backlog();
    const add = (number: number) =>
      backlog.add(() => {
        log.push(number);
        if (number === 1) throw new Error('of the first task');
      });
    for (const number of [1, 2, 3]) add(number);
    vi.advanceTimersByTime(999);
    expect(log).toEqual([]);
    vi.advanceTimersByTime(1);
    expect(log).toEqual([1]);
    vi.advanceTimersByTime(1);
    expect(log).toEqual([1, 2]);
    backlog[Symbol.dispose]();
    expect([log, vi.getTimerCount()]).toEqual([[1, 2, 3], 0]);
  });
});
