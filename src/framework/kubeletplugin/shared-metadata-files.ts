import type { Clock } from '../../lib/clock.ts';
import { intercept } from '../../lib/intercept.ts';
import type { FileLock } from './file-lock.ts';
import type { MetadataFiles } from './plugin-calls.ts';
import { SharedLock } from './shared-lock.ts';

/** A hook that updates metadata has 2 s in all. */
const lockTimeoutMs = 1_500;

/**
 * The same files for two instances of a driver: the lock makes reading a generation and writing the next one atomic.
 * Calls of this instance about different claims need not wait for each other.
 */
export function shareMetadataFiles(files: MetadataFiles, lock: FileLock, clock: Clock): MetadataFiles {
  const shared = new SharedLock(lock);
  return intercept(files, async ({ next }) => {
    using deadline = clock.deadline(lockTimeoutMs);
    using _ = await shared.acquire(deadline.signal);
    return await next();
  });
}
