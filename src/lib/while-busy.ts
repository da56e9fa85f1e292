import { pauseMs } from './backoff.ts';
import type { Clock } from './clock.ts';
import { pauses } from './waiting-times.ts';

/**
 * Makes a request again while it is refused for a reason that passes by itself, such as EBUSY of a card that is resetting
 * a VF, so that a call of the kubelet or the runtime does not fail for it.
 * @param isBusy whether an error is such a refusal
 * @throws what `request` throws: any other error at once, such a refusal after a second
 */
export async function whileBusy<T>(
  clock: Clock,
  isBusy: (error: unknown) => boolean,
  request: () => Promise<T>,
): Promise<T> {
  const endsAtMs = clock.nowMs() + pauses.busy.untilMs;
  for (let refusals = 0; ; refusals++) {
    try {
      return await request();
    } catch (error) {
      if (!isBusy(error) || clock.nowMs() >= endsAtMs) throw error;
      await clock.sleep(pauseMs(refusals, pauses.busy));
    }
  }
}
