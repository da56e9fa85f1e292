import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CloseWatch } from '../../../src/lib/close-watch.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

describe('CloseWatch', () => {
  it('tests its condition again without another event, since the kernel reports a close before it releases the locks', async () => {
    using dir = tempDir();
    const clock = new ManualClock();
    const [ours, theirs] = [0, 1].map(() => openSync(join(dir.path, 'lock'), 'a+')) as [number, number];
    let isFree = false;
    let tries = 0;
    let isOver = false;
    const waiting = new CloseWatch(clock)
      .until(ours, () => {
        tries++;
        return isFree;
      })
      .then(() => {
        isOver = true;
      });
    await expect.poll(() => tries).toBe(2);
    closeSync(theirs);
    await expect.poll(() => tries).toBe(3);
    isFree = true;
    await expect
      .poll(() => {
        clock.advance(250);
        return isOver;
      })
      .toBe(true);
    await waiting;
    closeSync(ours);
  });
});
