import { renderTable } from '../../../test/bench/render.ts';
import { summarize } from '../../../test/bench/stats.ts';

/** Measurements of pods that were created at once, in one round. */
export interface Batch {
  kind: string;
  count: number;
  /** From the first request until the API server has all of them as running. */
  allRunningMs: number;
  /** For each pod without a warning: from its creation to the start of its container, by the runtime's clock. */
  fromCreateMs: number[];
  /** For each pod without a warning: from the scheduler's binding to the start of its container. */
  fromBindingMs: number[];
  /** Warnings of the scheduler and the kubelet about pods. */
  warnings: { pod: string; text: string }[];
  /** CPU time of the programs that serve the pods, from before the first creation until 2 s after the last removal. */
  cpuMs?: number;
  /** The same, minus what these programs use in the same time when idle. */
  workCpuMs?: number;
}

const seconds = (ms: number) => (ms / 1_000).toFixed(2);

/** One line for each number of pods and kind of pod: medians of the rounds, and percentiles of all pods of all rounds. */
export function formatTimes(batches: readonly Batch[]): string {
  const head = [
    'pods at once',
    'each with',
    'all run, s',
    'create to start p50, s',
    'p99',
    'binding to start p50, s',
    'p99',
    'CPU of the driver for each, ms',
    'besides at rest',
    'rounds',
    'pods tried again',
  ];
  const rows = group(batches).map(([count, kind, of]) => {
    const timesOf = (key: 'fromCreateMs' | 'fromBindingMs') => {
      const values = of.flatMap(({ [key]: times }) => times);
      if (values.length === 0) return ['', ''];
      const { median, p99 } = summarize(values);
      return [seconds(median), seconds(p99)];
    };
    const cpuOf = (key: 'cpuMs' | 'workCpuMs') => {
      const values = of.flatMap(({ [key]: ms }) => (ms === undefined ? [] : [ms / count]));
      return values.length === 0 ? '' : summarize(values).median.toFixed(0);
    };
    return [
      String(count),
      kind,
      seconds(summarize(of.map(({ allRunningMs }) => allRunningMs)).median),
      ...timesOf('fromCreateMs'),
      ...timesOf('fromBindingMs'),
      cpuOf('cpuMs'),
      cpuOf('workCpuMs'),
      String(of.length),
      String(of.reduce((total, { warnings }) => total + new Set(warnings.map(({ pod }) => pod)).size, 0)),
    ];
  });
  return renderTable(head, rows);
}

function group(batches: readonly Batch[]): [count: number, kind: string, of: Batch[]][] {
  const groups = Map.groupBy(batches, ({ count, kind }) => `${count} ${kind}`);
  return [...groups.values()].map((of) => [of[0]!.count, of[0]!.kind, of]);
}
