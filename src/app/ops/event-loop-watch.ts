import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Logger } from '../../lib/logger.ts';

/** Duration of the shortest stall that counts, ms: every hook of the node waits during a stall. */
const stallMs = 200;
const everyMs = 1_000;
/**
 * Sampling interval, ms. The measured length of a stall is too short by up to this. Each sample wakes up the process, also on
 * an idle node.
 */
const resolutionMs = 100;

/**
 * Reports stalls of the event loop. During a stall the driver answers nothing, and NRI eventually lets pods start without its
 * answer.
 * @param onWindow called every second with the longest stall in it, ms; 0: no stall of at least `stallMs`
 */
export function watchEventLoop(logger: Logger, onWindow: (stallMs: number) => void): Disposable {
  const delays = monitorEventLoopDelay({ resolution: resolutionMs });
  delays.enable();
  const timer = setInterval(() => {
    const longestMs = Math.max(0, delays.max / 1e6 - resolutionMs);
    delays.reset();
    const isStall = longestMs > stallMs;
    if (isStall) logger.warn({ ms: Math.round(longestMs) }, 'event loop stalled');
    onWindow(isStall ? longestMs : 0);
  }, everyMs);
  timer.unref();
  return {
    [Symbol.dispose]() {
      clearInterval(timer);
      delays.disable();
    },
  };
}
