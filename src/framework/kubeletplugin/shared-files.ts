import type { Clock } from '../../lib/clock.ts';
import { intercept } from '../../lib/intercept.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { ClaimMetadata } from '../metadata/index.ts';
import { KubeletPluginError } from './errors.ts';

/** Key of the lock for the files of all claims. No claim's key contains a space. */
const filesKey = 'all files';
/**
 * Time limit for the lock, ms: an NRI hook that updates metadata has 2 s in all, and a starting driver should not wait for
 * another instance's work on a claim.
 */
const timeoutMs = 1_500;

/** The methods of `ClaimMetadata` that the framework calls. */
export type MetadataFiles = Pick<
  ClaimMetadata,
  | 'isNamePrepared'
  | 'prepareAll'
  | 'restore'
  | 'update'
  | 'withdraw'
  | 'openGate'
  | 'holdGate'
  | 'endGate'
  | 'unprepareAll'
>;

/**
 * Lets two instances of a driver that does not lock its claims share metadata files: each call holds a lock, so that an
 * instance reads a generation and writes the next one without interruption. All claims have one lock, separate from the locks
 * of calls: a driver may update metadata within its prepare.
 */
export function shareMetadataFiles(files: MetadataFiles, locks: Locks, clock: Clock): MetadataFiles {
  return intercept(files, async ({ name, next }) => {
    // It only reads a record, which is replaced as a whole.
    if (name === 'isNamePrepared') return await next();
    return await inTime(locks, filesKey, clock, async () => await next());
  });
}

/** Recreates the files of each claim while holding its lock, for a driver that locks its claims. @returns the failures */
export async function restoreEach(files: MetadataFiles, locks: Locks, clock: Clock): Promise<Error[]> {
  return await files.restore((key, task) => inTime(locks, key, clock, task));
}

async function inTime<T>(locks: Locks, key: string, clock: Clock, task: () => Promise<T>): Promise<T> {
  using deadline = clock.deadline(timeoutMs);
  using _ = await locks.acquireAll([key], deadline.signal).catch((cause) => {
    if (!deadline.signal.aborted) throw cause;
    const message = `another instance of the driver holds the lock of ${key}`;
    throw new KubeletPluginError('call-aborted', message, { cause, retriable: true });
  });
  return await task();
}
