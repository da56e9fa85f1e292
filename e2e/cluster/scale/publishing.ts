import { setTimeout as sleep } from 'node:timers/promises';
import type { Cost } from './api-metrics.ts';
import type { LargeCluster } from './large-cluster.ts';
import type { PublisherProcess } from './publisher-process.ts';

export const scenarios = {
  start: 'all drivers start at the same moment',
  rest: 'nothing changes, for an hour',
  update: 'a rolling update of the DaemonSet: another instance, then the first one ends',
  failure: 'a PF fails on every node at once: half of the VFs go',
  repair: 'all of them come back',
} as const;
export type Scenario = keyof typeof scenarios;

/** Cost of a scenario, for all nodes. */
export interface Outcome {
  scenario: Scenario;
  cost: Cost;
  /** Time until the last write; absent where none is expected. */
  writtenMs?: number;
  /** CPU time of the publishers' process. */
  cpuMs: number;
}

export interface PlayOptions {
  cluster: LargeCluster;
  publishers: PublisherProcess;
  restSeconds: number;
  progress: (line: string) => void;
}

/** Files with the devices of a node: all, and those that remain when a PF has failed. */
export type DeviceFiles = Record<'all' | 'left', string>;

/** Time for requests after the last write of a scenario: the mutation cache, and the checks after a write. */
const afterMs = 2_000;
/** Time for requests that come later, before the rest. */
const beforeRestMs = 35_000;

/** Runs the scenarios one after the other, and then the rest. All of them but an update write a slice for each node. */
export async function playPublishing(options: PlayOptions, devices: DeviceFiles): Promise<Outcome[]> {
  const { cluster, publishers, restSeconds, progress } = options;
  const outcomes: Outcome[] = [];
  const measure = async (scenario: Scenario, task: () => Promise<void>, writes: number, factor = 1) => {
    progress(scenario);
    const before = { metrics: await cluster.metrics(), cpuMs: publishers.cpuMs };
    const startedAt = performance.now();
    await task();
    const writtenMs = writes > 0 ? await cluster.untilWritten(writes, before.metrics, startedAt) : undefined;
    await sleep(afterMs);
    const cost = (await cluster.metrics()).costOf('resourceslices', before.metrics);
    outcomes.push({
      scenario,
      cost: multiply(cost, factor),
      cpuMs: (publishers.cpuMs - before.cpuMs) * factor,
      ...(writtenMs === undefined ? {} : { writtenMs }),
    });
  };
  const count = cluster.nodes.length;
  await measure('start', () => publishers.publish(devices.all), count);
  await measure('update', () => publishers.replace(), 0);
  await measure('failure', () => publishers.publish(devices.left), count);
  await measure('repair', () => publishers.publish(devices.all), count);
  await sleep(beforeRestMs);
  await measure('rest', () => sleep(restSeconds * 1_000), 0, 3_600 / restSeconds);
  return outcomes;
}

function multiply(cost: Cost, factor: number): Cost {
  const { reads, writes, receivedBytes, sentBytes, watchedBytes, refused } = cost;
  return {
    reads: reads * factor,
    writes: writes * factor,
    receivedBytes: receivedBytes * factor,
    sentBytes: sentBytes * factor,
    watchedBytes: watchedBytes * factor,
    refused: refused * factor,
  };
}
