import { describe, expect, it } from 'vitest';
import { HookMetrics } from '../../../e2e/cluster/start-times/hooks.ts';

const limits = [0.1, 0.25, 0.5, 1, Infinity];

/** A scrape with so many hooks in each bucket, not cumulative. */
function scrape(counts: number[], refused: number): string {
  const labels = 'driver_name="d",hook="runPodSandbox",result="ok"';
  let total = 0;
  const buckets = limits.map((limit, index) => {
    total += counts[index] ?? 0;
    return `netdra_hook_duration_seconds_bucket{le="${limit === Infinity ? '+Inf' : limit}",${labels}} ${total}`;
  });
  const other = 'netdra_hook_duration_seconds_count{hook="stopPodSandbox",result="ok",driver_name="d"} 1000';
  const errors = `netdra_hook_errors_total{hook="createContainer",code="not-ready",driver_name="d"} ${refused}`;
  return [...buckets, `netdra_hook_duration_seconds_count{${labels}} ${total}`, other, errors].join('\n');
}

describe('HookMetrics', () => {
  const before = new HookMetrics(scrape([50, 0, 0, 7, 0], 2));

  it('counts only what came since, and only RunPodSandbox', () => {
    const now = new HookMetrics(scrape([148, 1, 0, 7, 0], 2));
    expect(now.since(before)).toEqual({ runs: 99, p99AtMostMs: 250, outOfTime: 0, refused: 0 });
  });

  it('tells hooks that ran out of their time, and what was refused', () => {
    const now = new HookMetrics(scrape([140, 0, 0, 16, 1], 5));
    expect(now.since(before)).toEqual({ runs: 100, p99AtMostMs: 1_000, outOfTime: 10, refused: 3 });
  });
});
