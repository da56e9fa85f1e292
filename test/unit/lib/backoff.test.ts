import { beforeEach, describe, expect, it } from 'vitest';
import { Backoff } from '../../../src/lib/backoff.ts';
import { pauses } from '../../../src/lib/waiting-times.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { turns } from '../driver/sandbox/fake-networks.ts';

describe('Backoff', () => {
  let clock: ManualClock;
  let runs: number;
  let retry: Backoff;
  beforeEach(() => {
    clock = new ManualClock();
    runs = 0;
    retry = new Backoff(clock, pauses.sandbox, () => runs++);
  });

  it('repeats work after growing pauses, and tells whether a repetition is due', async () => {
    expect([1, 2, 3, 4, 5, 6].map(() => retry.schedule())).toEqual([500, 1_000, 2_000, 4_000, 5_000, 5_000]);
    expect([retry.attempts, retry.isScheduled, clock.sleeping()]).toEqual([6, true, [5_000]]);
    clock.advance(5_000);
    await turns();
    expect([runs, retry.isScheduled]).toEqual([1, false]);
    retry.schedule();
    retry.cancel();
    expect([retry.isScheduled, clock.sleeping()]).toEqual([false, []]);
  });

  it('can be cancelled or restarted at the moment its pause ends', async () => {
    retry.schedule();
    clock.advance(500);
    retry.cancel();
    await turns();
    expect(runs).toBe(0);
    retry.after(100);
    clock.advance(100);
    retry.after(200);
    await turns();
    expect([runs, retry.isScheduled]).toEqual([0, true]);
    clock.advance(200);
    await turns();
    expect([runs, retry.isScheduled]).toEqual([1, false]);
  });

  it('returns to the shortest pause only ten seconds after a success', () => {
    retry.schedule();
    retry.reset();
    expect([retry.attempts, retry.schedule(), retry.attempts]).toEqual([0, 1_000, 1]);
    retry.reset();
    clock.advance(10_001);
    expect(retry.schedule()).toBe(500);
  });
});
