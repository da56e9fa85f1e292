import { readFileSync } from 'node:fs';
import { load } from 'js-yaml';
import { parseScrape } from '../../../test/doubles/prometheus.ts';

const values = readFileSync(new URL('../../../deploy/helm/netdra/values.yaml', import.meta.url), 'utf8');
/** At the chart's default port; the driver has the node's network. */
const metricsUrl = `http://127.0.0.1:${(load(values) as { http: { port: number } }).http.port}/metrics`;
/** Time for which RunPodSandbox waits for its work. Longer work continues after the answer. */
const hookBudgetSeconds = 0.5;

/** Hooks that the driver has answered in a period. */
export interface HookFigures {
  runs: number;
  /** Upper end of the bucket that contains the 99th percentile, ms: the driver's buckets are coarse. */
  p99AtMostMs: number;
  /** Hooks answered when the driver's wait expired, before their work was done: containers wait in the start gate. */
  outOfTime: number;
  /** Hooks of any kind. */
  refused: number;
}

/** The driver's counts of its hooks, between two moments. */
export class HookMetrics {
  readonly #counts: Map<string, number>;

  /** @param text of the driver's `/metrics` */
  constructor(text: string) {
    this.#counts = parseScrape(text);
  }

  static async read(): Promise<HookMetrics> {
    return new HookMetrics(await (await fetch(metricsUrl)).text());
  }

  /** The increase since then. */
  since(before: HookMetrics): HookFigures {
    const added = [...this.#counts].map(([series, value]): [string, number] => [
      series,
      value - (before.#counts.get(series) ?? 0),
    ]);
    const sumOf = (pattern: RegExp) =>
      added.reduce((sum, [series, value]) => sum + (pattern.test(series) ? value : 0), 0);
    const runs = sumOf(/^netdra_hook_duration_seconds_count\{.*hook="runPodSandbox"/);
    const buckets = bucketsOf(added);
    const upTo = (seconds: number) => buckets.find(([limit]) => limit === seconds)?.[1] ?? 0;
    const [p99 = Infinity] = buckets.find(([, count]) => count >= 0.99 * runs) ?? [];
    return {
      runs,
      p99AtMostMs: p99 * 1_000,
      outOfTime: runs - upTo(hookBudgetSeconds),
      refused: sumOf(/^netdra_hook_errors_total/),
    };
  }
}

/** Cumulative counts of RunPodSandbox by the upper limit of the bucket, s, whatever the result, ascending. */
function bucketsOf(added: readonly [string, number][]): [limit: number, count: number][] {
  const counts = new Map<number, number>();
  for (const [series, value] of added) {
    if (!/^netdra_hook_duration_seconds_bucket\{.*hook="runPodSandbox"/.test(series)) continue;
    const limit = Number(/le="([^"]*)"/.exec(series)?.[1]?.replace('+Inf', 'Infinity'));
    counts.set(limit, (counts.get(limit) ?? 0) + value);
  }
  return [...counts].sort(([a], [b]) => a - b);
}
