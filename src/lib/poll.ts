import type { Clock } from './clock.ts';

/** Times, ms. */
export interface PollTimes {
  forMs: number;
  everyMs: number;
}

/**
 * Polls until `isDone` accepts the answer or time is up; asks at least once.
 * @param isDone default: whether the answer is truthy
 * @returns the last answer, accepted or not
 */
export async function poll<T>(
  clock: Clock,
  { forMs, everyMs }: PollTimes,
  ask: () => Promise<T>,
  isDone: (answer: T) => boolean = Boolean,
): Promise<T> {
  for (const endsAtMs = clock.nowMs() + forMs; ; await clock.sleep(everyMs)) {
    const answer = await ask();
    if (isDone(answer) || clock.nowMs() >= endsAtMs) return answer;
  }
}
