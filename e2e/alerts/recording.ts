import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from '../../scripts/run-command.ts';

/** A test of `promtool test rules`: a step of its samples is a minute, as long as a step of the recording lasted a second. */
export interface AlertTest {
  /** Of the alert. */
  name: string;
  interval: string;
  input_series: { series: string; values: string }[];
  promql_expr_test: { expr: string; eval_time: string; exp_samples: { labels: string; value: number }[] }[];
}

/** What a driver's metrics were while an alert began and ended, second by second. */
export interface AlertRecording {
  alert: string;
  /** Values by series in PromQL notation; `undefined` where there is none. */
  series: ReadonlyMap<string, readonly (number | undefined)[]>;
  /** Steps at which the alert fires, and no longer fires. */
  firesAt: number;
  endsAt: number;
  /** Values of the alert's label `node`; empty for the alert about all nodes. */
  nodes: readonly string[];
}

export function alertTestOf({ alert, series, firesAt, endsAt, nodes }: AlertRecording): AlertTest {
  const expr = `group by (node) (ALERTS{alertname="${alert}", alertstate="firing"})`;
  const fired =
    nodes.length === 0 ? [{ labels: '{}', value: 1 }] : nodes.map((node) => ({ labels: `{node="${node}"}`, value: 1 }));
  return {
    name: alert,
    interval: '1m',
    input_series: [...series].map(([each, values]) => ({ series: each, values: formatSamples(values) })),
    promql_expr_test: [
      { expr, eval_time: '0m', exp_samples: [] },
      { expr, eval_time: `${firesAt}m`, exp_samples: fired },
      { expr, eval_time: `${endsAt}m`, exp_samples: [] },
    ],
  };
}

/** In promtool's notation, with runs of equal values as `VALUExREPEATS`. A series that ends is `stale` first, as Prometheus marks it. */
export function formatSamples(values: readonly (number | undefined)[]): string {
  const tokens = values.map((value, step) => {
    if (value !== undefined) return String(value);
    return step > 0 && values[step - 1] !== undefined ? 'stale' : '_';
  });
  const runs: { token: string; repeats: number }[] = [];
  for (const token of tokens) {
    const last = runs.at(-1);
    if (last?.token === token) last.repeats += 1;
    else runs.push({ token, repeats: 0 });
  }
  const format = ({ token, repeats }: (typeof runs)[number]) => {
    if (repeats === 0 || token === 'stale') return token;
    return token === '_' ? `_x${repeats + 1}` : `${token}x${repeats}`;
  };
  return runs.map(format).join(' ');
}

/** For `e2e/alerts/write-tests.ts`. @param dir the results of the suite; default: those of suites outside a virtual machine */
export function keepRecording(recording: AlertRecording, dir = join(repository, 'test-results')): void {
  const folder = join(dir, 'alerts');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, `${recording.alert}.json`), JSON.stringify(alertTestOf(recording)));
}
