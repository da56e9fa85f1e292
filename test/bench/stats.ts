/** Summary of several measurements, in their unit. */
export interface Distribution {
  median: number;
  p99: number;
  runs: number;
}

/** @throws RangeError without any value */
export function summarize(values: readonly number[]): Distribution {
  const sorted = [...values].sort((a, b) => a - b);
  return { median: percentile(sorted, 0.5), p99: percentile(sorted, 0.99), runs: sorted.length };
}

/**
 * By the nearest rank: always a measured value.
 * @param sorted ascending
 * @param share 0 … 1
 */
function percentile(sorted: readonly number[], share: number): number {
  const value = sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
  if (value === undefined) throw new RangeError('nothing was measured');
  return value;
}
