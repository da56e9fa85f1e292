import type { StoredClaim } from '../model/index.ts';
import { type MeanwhileOptions, readMeanwhile } from './read-meanwhile.ts';

export interface ServeOptions extends MeanwhileOptions {
  /** All claims of the pod with devices. */
  all: readonly StoredClaim[];
  /** Serves a claim. @param waits called if only routers are awaited any more */
  serve: (claim: StoredClaim, waits: () => void) => Promise<void>;
}

/**
 * Serves claims of a pod one after the other, each after the VFs of the earlier ones are attached: their waits for routers
 * overlap, and a claim without such a wait is ready before they end. Returns, or throws, once no work on a claim is left.
 * @throws what `serve` throws
 */
export async function serveInTurn(claims: readonly StoredClaim[], options: ServeOptions): Promise<void> {
  const { all, progress, serve } = options;
  const waiting: Promise<void>[] = [];
  // Ready claims first: they are only read, and attaching the others may take long.
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
