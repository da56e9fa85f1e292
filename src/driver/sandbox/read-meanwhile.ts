import { type Clock, repeat } from '../../lib/clock.ts';
import { SandboxError, type StoredClaim } from '../model/index.ts';
import type { ClaimProgress } from './claim-progress.ts';

/**
 * Interval, ms, and number of reads of tentative addresses if the pod is not followed. Duplicate address detection takes 1 to
 * 3 s.
 */
export const tentative = { everyMs: 500, reads: 10 };

/** Callbacks of a repeated read, which report no progress: the device was counted when it was attached. */
export const unreported = { deviceBegins: () => undefined, deviceReady: () => undefined, waits: () => undefined };

export interface MeanwhileOptions {
  clock: Clock;
  progress: ClaimProgress;
  /** Returns whether the kernel reports when addresses are no longer tentative. */
  isFollowed: () => boolean;
  read: (claim: StoredClaim) => Promise<void>;
}

/**
 * Waits for work on one claim, whose plugins may take long. While it waits, reads other ready claims that may have changed:
 * containers of the pod may already run with them.
 * @throws errors of the work
 */
export async function readMeanwhile(
  work: Promise<unknown>,
  others: readonly StoredClaim[],
  { clock, progress, isFollowed, read }: MeanwhileOptions,
): Promise<void> {
  let { changesRead } = progress;
  let reads = 0;
  const look = async () => {
    const isChanged = progress.changes !== changesRead;
    changesRead = progress.changes;
    const isSettling = !isFollowed() && ++reads <= tentative.reads;
    const isDue = ({ identity: { uid } }: StoredClaim) =>
      progress.isReady(uid) && (isChanged || (isSettling && progress.isTentative(uid)));
    for (const claim of others.filter(isDue)) await read(claim);
  };
  const ended = new AbortController();
  const reading = others.length > 0 && repeat(clock, tentative.everyMs, ended.signal, look);
  try {
    await work;
  } finally {
    if (reading !== false) ended.abort(new SandboxError('not-ready', 'the work on the claim has ended'));
    await reading;
  }
}
