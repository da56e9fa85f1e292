import type { Clock } from '../../lib/clock.ts';
import { errnoCode } from '../../lib/errors.ts';
import { NetlinkError } from '../netlink/index.ts';

/** How long a driver or the card's firmware may be busy, with a reset for example, before a refusal counts. */
const busyMs = 2_000;
const pauseMs = 100;

/**
 * Repeats a write to sysfs or a request to a PF that the kernel refuses only for the moment (`EAGAIN`, `EBUSY`), for a while.
 * @throws the last refusal, or any other error at once
 */
export async function writePatiently(clock: Clock, write: () => Promise<void>): Promise<void> {
  for (const endsAt = clock.nowMs() + busyMs; ; await clock.sleep(pauseMs)) {
    try {
      return await write();
    } catch (error) {
      if (!isTransient(error) || clock.nowMs() >= endsAt) throw error;
    }
  }
}

function isTransient(error: unknown): boolean {
  const errno = error instanceof NetlinkError ? error.errno : errnoCode(error);
  return errno !== undefined && ['EAGAIN', 'EBUSY'].includes(errno);
}
