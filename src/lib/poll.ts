import type { Clock } from './clock.ts';

/** Times, ms. */
export interface PollTimes {
  forMs: number;
  everyMs: number;
  /**
   * Longest pause. Pauses last a quarter of the time since the first poll, and at least `everyMs`. Absent: all pauses last
   * `everyMs`.
   */
  mostMs?: number;
}

/**
 * Polls until `isDone` accepts the answer or time is up; asks at least once.
 * @param isDone default: accepts truthy answers
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
