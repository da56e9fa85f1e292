import { expect, it } from 'vitest';
import { resolvesWithin, systemClock } from '../../../src/lib/clock.ts';

/** Node.js ends a timer at once whose time does not fit into 31 bits. */
const tooLongFor = [2 ** 31, Number.POSITIVE_INFINITY];

it.each(tooLongFor)('systemClock waits for %d ms instead of returning at once', async (ms) => {
  using deadline = systemClock.deadline(ms);
  expect(await resolvesWithin(systemClock, 20, systemClock.sleep(ms, deadline.signal))).toBe(false);
  expect(deadline.signal.aborted).toBe(false);
  await expect(resolvesWithin(systemClock, ms, systemClock.sleep(20))).resolves.toBe(true);
});
