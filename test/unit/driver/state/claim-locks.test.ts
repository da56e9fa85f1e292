import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ClaimLocks } from '../../../../src/driver/state/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

describe('ClaimLocks', () => {
  it('keeps several claims from other tasks and instances, in whatever order they are named', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'claims.lock');
    using ours = new ClaimLocks(path, systemClock);
    using theirs = new ClaimLocks(path, systemClock);
    const running = new Set<string>();
    const task = (uids: string[]) => async () => {
      for (const uid of uids) {
        expect(running).not.toContain(uid);
        running.add(uid);
      }
      await systemClock.sleep(3);
      for (const uid of uids) running.delete(uid);
      return uids.length;
    };
    const calls = [['a', 'b'], ['b', 'a', 'b'], ['c', 'a'], ['b', 'c'], ['b']].map((uids) => [...new Set(uids)]);
    const counts = await Promise.all(
      calls.flatMap((uids) => [
        ours.runAll(uids, task(uids)),
        theirs.runAll(uids, task(uids)),
        ours.run('d', task(['e'])),
      ]),
    );
    expect(counts).toHaveLength(15);
    expect(running.size).toBe(0);
  });

  it('gives them back when the task fails', async () => {
    using dir = tempDir();
    const path = join(dir.path, 'claims.lock');
    using ours = new ClaimLocks(path, systemClock);
    using theirs = new ClaimLocks(path, systemClock);
    await expect(ours.runAll(['a', 'b'], () => Promise.reject(new Error('of the task')))).rejects.toThrow(
      'of the task',
    );
    expect(await theirs.runAll(['b', 'a'], async () => 'free')).toBe('free');
    expect(await ours.runAll([], async () => 'none')).toBe('none');
  });
});
