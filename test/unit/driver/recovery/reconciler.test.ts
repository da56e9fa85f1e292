import { describe, expect, it } from 'vitest';
import { Reconciler, type ReconcileTask } from '../../../../src/driver/recovery/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { ManualClock } from '../../../doubles/manual-clock.ts';

function create(tasks: ReconcileTask[]) {
  const clock = new ManualClock();
  const logger = new RecordingLogger();
  return { clock, logger, reconciler: new Reconciler({ tasks, everyMs: 60_000, clock, logger }) };
}

describe('Reconciler', () => {
  it('runs a round after each pause, and after a change', async () => {
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

  describe('when its own tasks request rounds', () => {
    /** Rounds are counted; a task requests another one in this way, `requests` times at most. The first is requested. */
    function createNudging(
      nudge: (reconciler: Reconciler) => unknown = (reconciler) => reconciler.nudge(),
      requests = Number.POSITIVE_INFINITY,
    ) {
      const counted = { rounds: 0, requests };
      const bench = create([
        { name: 'count', run: async () => void counted.rounds++ },
        { name: 'nudge', run: async () => void (counted.requests-- > 0 && (await nudge(bench.reconciler))) },
      ]);
      bench.reconciler.start();
      bench.reconciler.nudge();
      return { ...bench, counted, [Symbol.asyncDispose]: () => bench.reconciler[Symbol.asyncDispose]() };
    }
    const pauses = async ({ clock, counted }: ReturnType<typeof createNudging>, count: number) => {
      const seen: [rounds: number, pauseMs: number][] = [];
      for (let n = 0; n < count; n++) {
        await settled();
        const [pauseMs = 0] = clock.sleeping();
        seen.push([counted.rounds, pauseMs]);
        clock.advance(pauseMs);
      }
      return seen;
    };

    it('runs one more round at once, and further rounds with growing pauses up to the normal pause', async () => {
      await using bench = createNudging();
      expect(await pauses(bench, 8)).toEqual([
        [2, 1_000],
        [3, 2_000],
        [4, 4_000],
        [5, 8_000],
        [6, 16_000],
        [7, 32_000],
        [8, 60_000],
        [9, 60_000],
      ]);
    });

    it('runs rounds with growing pauses even if the requests come from background work of a task', async () => {
      await using bench = createNudging((reconciler) => void setImmediate(() => reconciler.nudge()));
      expect(await pauses(bench, 3)).toEqual([
        [2, 1_000],
        [3, 2_000],
        [4, 4_000],
      ]);
    });

    it('runs a round at once after a change from outside', async () => {
      await using bench = createNudging();
      await pauses(bench, 3);
      await settled();
      bench.reconciler.nudge();
      await settled();
      expect([bench.counted.rounds, bench.clock.sleeping()]).toEqual([6, [16_000]]);
    });

    it('runs another round at once if something changes during the current round', async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      await using bench = createNudging(() => promise, 1);
      await settled();
      bench.reconciler.nudge();
      resolve();
      await settled();
      expect([bench.counted.rounds, bench.clock.sleeping()]).toEqual([2, [60_000]]);
    });

    it('resets the pause after a round without a request', async () => {
      await using bench = createNudging(undefined, 3);
      expect(await pauses(bench, 3)).toEqual([
        [2, 1_000],
        [3, 2_000],
        [4, 60_000],
      ]);
      await settled();
      bench.counted.requests = 2;
      bench.reconciler.nudge();
      expect(await pauses(bench, 2)).toEqual([
        [7, 1_000],
        [8, 60_000],
      ]);
    });
  });

  it('continues after a failed task, and logs its name', async () => {
    const done: string[] = [];
    const { logger, reconciler } = create([
      { name: 'bad', run: () => Promise.reject(new Error('no')) },
      { name: 'good', run: async () => void done.push('good') },
    ]);
    await reconciler.round();
    expect(done).toEqual(['good']);
    expect(logger.lines).toMatchObject([{ level: 'warn', fields: { task: 'bad' } }]);
  });

  it('runs other tasks while one task is slow, and repeats the slow task when it ends', async () => {
    const ran: string[] = [];
    const slow = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const { clock, reconciler } = create([
      {
        name: 'slow',
        async run() {
          ran.push('slow');
          await slow.shift()?.promise;
        },
      },
      { name: 'other', run: async () => void ran.push('other') },
    ]);
    const [first] = slow;
    const round = async () => {
      const whole = reconciler.round();
      await settled();
      clock.advance(5_000);
      await whole;
    };
    await round();
    await round();
    expect(ran).toEqual(['slow', 'other', 'other']);
    first?.resolve();
    await settled();
    expect(ran).toEqual(['slow', 'other', 'other', 'slow']);
  });

  it('runs one round at a time, and aborts it on stop', async () => {
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

/** Lets everything go on that does not wait for the clock. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
}
