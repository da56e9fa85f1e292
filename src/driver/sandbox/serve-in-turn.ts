import type { StoredClaim } from '../model/index.ts';
import { type MeanwhileOptions, readMeanwhile } from './read-meanwhile.ts';

export interface ServeOptions extends MeanwhileOptions {
  /** All claims of the pod that have devices. */
  all: readonly StoredClaim[];
  /** Serves a claim. @param waits called when only addresses from routers are missing */
  serve: (claim: StoredClaim, waits: () => void) => Promise<void>;
}

/**
 * Serves claims of a pod one after the other. The next claim begins when the VFs of the earlier one are attached, so that
 * waits for routers overlap, and a claim without such a wait is ready before they end. Returns or throws only after all work
 * on claims has ended.
 * @throws errors of `serve`
 */
export async function serveInTurn(claims: readonly StoredClaim[], options: ServeOptions): Promise<void> {
  const { all, progress, serve } = options;
  const waiting: Promise<void>[] = [];
  // Ready claims come first: they are only read, whereas attaching the others may take long.
  const isReady = ({ identity }: StoredClaim) => Number(progress.isReady(identity.uid));
  try {
    for (const claim of claims.toSorted((one, other) => isReady(other) - isReady(one))) {
      const others = isReady(claim) ? [] : all.filter((each) => each !== claim);
      const waits = Promise.withResolvers<void>();
      const work = serve(claim, waits.resolve);
      void waits.promise.then(() => waiting.push(work));
      await readMeanwhile(Promise.race([work, waits.promise]), others, options);
    }
    if (waiting.length > 0) await readMeanwhile(Promise.all(waiting), all, options);
  } finally {
    await Promise.allSettled(waiting);
  }
}
