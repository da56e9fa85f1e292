import { describe, expect, it } from 'vitest';
import { Background } from '../../../src/lib/background.ts';

/** Work that waits for `go`, or for the signal. */
function waiting() {
  const { promise, resolve: go } = Promise.withResolvers<void>();
  let runs = 0;
  const work = async (signal: AbortSignal) => {
    runs += 1;
    await Promise.race([promise, new Promise((_, reject) => signal.addEventListener('abort', reject))]);
  };
  return { work, go, runs: () => runs };
}

describe('Background', () => {
  it('has at most one run per key, shared by all callers', async () => {
    await using background = new Background();
    const { work, go, runs } = waiting();
    const calls = [background.run('a', work), background.run('a', work), background.run('b', work)];
    expect([runs(), background.isRunning('a'), background.isRunning('c')]).toEqual([2, true, false]);
    go();
    await Promise.all(calls);
    expect(background.isRunning('a')).toBe(false);
    await background.run('a', work);
    expect(runs()).toBe(3);
  });

  it('starts another run for a call that arrives at the moment when a run ends', async () => {
    await using background = new Background();
    for (let microtasks = 0; microtasks < 20; microtasks++) {
      let wanted = 1;
      let done = 0;
      const work = async () => {
        while (done < wanted) done = wanted;
      };
      const call = () => background.run('a', work, () => done < wanted);
      void call();
      for (let n = 0; n < microtasks; n++) await undefined;
      wanted = 2;
      await call();
      expect(done).toBe(2);
    }
  });

  it('passes on errors of runs that were not aborted, and starts no run after it is disposed of', async () => {
    const background = new Background();
    const failing = background.run('a', async () => {
      throw new Error('x');
    });
    await expect(failing).rejects.toThrow('x');
    const { work, runs } = waiting();
    const ended = background.run('a', work);
    await background[Symbol.asyncDispose]();
    await ended;
    await background.run('a', work);
    expect(runs()).toBe(1);
  });
});
