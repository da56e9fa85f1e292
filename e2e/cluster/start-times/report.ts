import { renderTable } from '../../../test/bench/render.ts';
import { summarize } from '../../../test/bench/stats.ts';
import { type Histogram, p99Of, together } from './histogram.ts';

/** What the kubelet and the driver measure by themselves, in seconds. */
export const latencies = {
  prepare: "kubelet's PrepareResources",
  unprepare: "kubelet's UnprepareResources",
  write: 'write of metadata',
} as const;
export type Latency = keyof typeof latencies;

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
  /** Resident memory of these programs while all pods run. */
  memoryMb?: number;
  /** Absent: not measured for pods of this kind. */
  durations: Partial<Record<Latency, Histogram>>;
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
    'memory with them, MB',
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
    const medianOf = (key: 'cpuMs' | 'workCpuMs' | 'memoryMb', among = 1) => {
      const values = of.flatMap(({ [key]: value }) => (value === undefined ? [] : [value / among]));
      return values.length === 0 ? '' : summarize(values).median.toFixed(0);
    };
    return [
      String(count),
      kind,
      seconds(summarize(of.map(({ allRunningMs }) => allRunningMs)).median),
      ...timesOf('fromCreateMs'),
      ...timesOf('fromBindingMs'),
      medianOf('cpuMs', count),
      medianOf('workCpuMs', count),
      medianOf('memoryMb'),
      String(of.length),
      String(of.reduce((total, { warnings }) => total + new Set(warnings.map(({ pod }) => pod)).size, 0)),
    ];
  });
  return renderTable(head, rows);
}

/** One line for each number of pods and kind of pod: what 99 of 100 calls and writes took at most, by the buckets of their histograms. */
export function formatLatencies(batches: readonly Batch[]): string {
  const keys = Object.keys(latencies) as Latency[];
  const rows = group(batches).flatMap(([count, kind, of]) => {
    const limits = keys.map((key) =>
      p99Of(together(of.flatMap(({ durations: { [key]: each } }) => (each === undefined ? [] : [each])))),
    );
    if (limits.every((limit) => limit === undefined)) return [];
    return [[String(count), kind, ...limits.map((limit) => (limit === undefined ? '' : formatLimit(limit)))]];
  });
  return renderTable(['pods at once', 'each with', ...keys.map((key) => `${latencies[key]}, p99, ms`)], rows);
}

/** @param seconds upper limit of a bucket; the last one has none */
function formatLimit(seconds: number): string {
  return seconds === Infinity ? 'beyond the last bucket' : `≤ ${Math.round(seconds * 1_000)}`;
}

function group(batches: readonly Batch[]): [count: number, kind: string, of: Batch[]][] {
  const groups = Map.groupBy(batches, ({ count, kind }) => `${count} ${kind}`);
  return [...groups.values()].map((of) => [of[0]!.count, of[0]!.kind, of]);
}
