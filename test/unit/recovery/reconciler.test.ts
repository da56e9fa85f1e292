import { describe, expect, it } from 'vitest';
import { Reconciler, type ReconcileTask } from '../../../src/recovery/index.ts';
import { RecordingLogger } from '../../doubles/logger.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';

function create(tasks: ReconcileTask[]) {
  const clock = new ManualClock();
  const logger = new RecordingLogger();
  return { clock, logger, reconciler: new Reconciler({ tasks, everyMs: 60_000, clock, logger }) };
}

describe('Reconciler', () => {
  it('makes a round after each pause, and one when something has changed', async () => {
    let rounds = 0;
    const { clock, reconciler } = create([{ name: 'count', run: async () => void rounds++ }]);
    await using _ = reconciler;
    reconciler.start();
    await expect.poll(() => clock.sleeping()).toEqual([60_000]);
    expect(rounds).toBe(0);
    clock.advance(60_000);
    await expect.poll(() => rounds).toBe(1);
    await expect.poll(() => clock.sleeping()).toEqual([60_000]);
    reconciler.nudge();
    await expect.poll(() => rounds).toBe(2);
    // The pause begins anew: no second timer is left.
    await expect.poll(() => clock.sleeping()).toEqual([60_000]);
  });

  it('goes on after a task that fails, and says which', async () => {
    const done: string[] = [];
    const { logger, reconciler } = create([
      { name: 'bad', run: () => Promise.reject(new Error('no')) },
      { name: 'good', run: async () => void done.push('good') },
    ]);
    await reconciler.round(new AbortController().signal);
    expect(done).toEqual(['good']);
    expect(logger.lines).toMatchObject([{ level: 'warn', fields: { task: 'bad' } }]);
  });

  it('makes one round at a time, and ends with it when it is told to', async () => {
    let running = 0;
    let most = 0;
    const hang = (signal: AbortSignal) =>
      new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    const { logger, reconciler } = create([
      {
        name: 'slow',
        run: async (signal) => {
          most = Math.max(most, ++running);
          await hang(signal);
          running -= 1;
        },
      },
    ]);
    reconciler.start();
    reconciler.nudge();
    await expect.poll(() => running).toBe(1);
    reconciler.nudge();
    await reconciler[Symbol.asyncDispose]();
    expect([running, most, logger.lines]).toEqual([0, 1, []]);
  });
});
