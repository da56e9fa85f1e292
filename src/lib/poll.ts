import type { Clock } from './clock.ts';

/** Milliseconds. */
export interface PollTimes {
  forMs: number;
  everyMs: number;
}

/**
 * Asks again and again until the answer will do, at least once.
 * @param isDone default: whether the answer is truthy
 * @returns the last answer, which need not do
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
