import { parseScrape } from '../../../test/doubles/prometheus.ts';

/** A Prometheus histogram: how many values were at most `upTo`, in ascending order. */
export type Histogram = readonly { upTo: number; count: number }[];

/** Reads a histogram from a scrape, all series with these labels together. @param labels as in the scrape: `name="value"` */
export function readHistogram(scrape: string, name: string, ...labels: string[]): Histogram {
  const counts = new Map<number, number>();
  for (const [series, value] of parseScrape(scrape)) {
    if (!series.startsWith(`${name}_bucket{`) || !labels.every((label) => series.includes(label))) continue;
    const limit = /le="([^"]+)"/.exec(series)?.[1];
    const upTo = limit === '+Inf' ? Infinity : Number(limit);
    counts.set(upTo, (counts.get(upTo) ?? 0) + value);
  }
  return [...counts].map(([upTo, count]) => ({ upTo, count })).sort((a, b) => a.upTo - b.upTo);
}

/** Values that `after` has and `before` has not. */
export function since(before: Histogram, after: Histogram): Histogram {
  const earlier = new Map(before.map(({ upTo, count }) => [upTo, count]));
  return after.map(({ upTo, count }) => ({ upTo, count: count - (earlier.get(upTo) ?? 0) }));
}

/** Values of several histograms with the same buckets. */
export function together(histograms: readonly Histogram[]): Histogram {
  const counts = new Map<number, number>();
  for (const { upTo, count } of histograms.flat()) counts.set(upTo, (counts.get(upTo) ?? 0) + count);
  return [...counts].map(([upTo, count]) => ({ upTo, count })).sort((a, b) => a.upTo - b.upTo);
}

/** The bucket that 99 of 100 values are in or below. @returns its upper limit; `undefined` without any value */
export function p99Of(histogram: Histogram): number | undefined {
  const total = histogram.at(-1)?.count ?? 0;
  return total === 0 ? undefined : histogram.find(({ count }) => count >= 0.99 * total)?.upTo;
}
