import type { Clock } from './clock.ts';

/**
 * Makes concurrent calls of a task share one run and its result.
 * @param kept time after the start of a successful run in which later calls share it, too
 */
export function shared<T>(task: () => Promise<T>, kept?: { ms: number; clock: Clock }): () => Promise<T> {
  let last: { result: Promise<T>; endsAtMs: number } | undefined;
  return () => {
    const nowMs = kept?.clock.nowMs() ?? 0;
    if (last !== undefined && nowMs < last.endsAtMs) return last.result;
    const run = { result: task(), endsAtMs: Number.POSITIVE_INFINITY };
    last = run;
    run.result.then(
      () => {
        run.endsAtMs = nowMs + (kept?.ms ?? 0);
      },
      () => {
        run.endsAtMs = 0;
      },
    );
    return run.result;
  };
}
