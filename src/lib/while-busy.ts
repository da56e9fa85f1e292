import { pauseMs } from './backoff.ts';
import type { Clock } from './clock.ts';
import { pauses } from './waiting-times.ts';

/**
 * Retries a request while a temporary condition refuses it, such as EBUSY of a NIC that is resetting a VF, so that it does
 * not fail a call of the kubelet or the runtime.
 * @param isBusy whether an error is such a refusal
 * @throws what `request` throws: other errors at once, such a refusal after a second
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
