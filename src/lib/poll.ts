import type { Clock } from './clock.ts';

/** Times, ms. */
export interface PollTimes {
  forMs: number;
  everyMs: number;
  /** Limit for pauses that grow with a quarter of the time that has passed; absent: all last `everyMs`. */
  mostMs?: number;
}

/**
 * Polls until `isDone` accepts the answer or time is up; asks at least once.
 * @param isDone default: whether the answer is truthy
 * @returns the last answer, accepted or not
 */
export async function poll<T>(
  clock: Clock,
  { forMs, everyMs, mostMs = everyMs }: PollTimes,
  ask: () => Promise<T>,
  isDone: (answer: T) => boolean = Boolean,
): Promise<T> {
  for (const beganAtMs = clock.nowMs(); ; ) {
    const answer = await ask();
    const passedMs = clock.nowMs() - beganAtMs;
    if (isDone(answer) || passedMs >= forMs) return answer;
    await clock.sleep(Math.max(everyMs, Math.min(mostMs, passedMs / 4)));
  }
}
