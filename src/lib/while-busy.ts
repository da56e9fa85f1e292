import { pauseMs } from './backoff.ts';
import type { Clock } from './clock.ts';
import { pauses } from './waiting-times.ts';

/**
 * Retries a request while a temporary condition refuses it, such as EBUSY of a NIC that is resetting a VF. Otherwise this would
 * fail a call of the kubelet or the runtime.
 * @param isBusy whether an error is a temporary refusal
 * @throws errors of `request`: temporary refusals after a second, all others at once
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
