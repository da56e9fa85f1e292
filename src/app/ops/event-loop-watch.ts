import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Logger } from '../../lib/logger.ts';

/** A stall that affects pods: every hook of the node waits for it. */
const stallMs = 200;
const everyMs = 1_000;
/**
 * Sampling interval. A stall that begins between two samples reads as shorter, by up to this. Each sample wakes the process
 * up, also on a node where nothing happens.
 */
const resolutionMs = 100;

/**
 * Reports stalls of the event loop: nothing is answered during a stall, and NRI lets pods pass after a while.
 * @param onWindow called every second with the longest stall in it, ms; 0: none that counts
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
