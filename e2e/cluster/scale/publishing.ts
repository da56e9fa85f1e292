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
  noCarrier: 'every PF loses its carrier at once: all VFs get a taint',
  carrier: 'the carriers are back',
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

export interface PublishingOptions {
  cluster: LargeCluster;
  publishers: PublisherProcess;
  /** Files with the devices of a node: all, those that remain when a PF has failed, and all without a carrier. */
  devices: { all: string; left: string; tainted: string };
  restSeconds: number;
  progress: (line: string) => void;
}

const resource = 'resourceslices';

/** Runs the scenarios of slices with the given publishers. */
export async function playPublishing(options: PublishingOptions): Promise<Outcome[]> {
  const { cluster, publishers, devices, restSeconds } = options;
  const outcomes: Outcome[] = [];
  const play = async (scenario: Scenario, task: () => Promise<void>, writes: number, factor = 1) => {
    options.progress(scenario);
    const before = { metrics: await cluster.metrics(), cpuMs: publishers.cpuMs };
    const startedAt = performance.now();
    await task();
    const writtenMs = writes > 0 ? await cluster.untilWritten(resource, writes, before.metrics, startedAt) : undefined;
    // Includes what publishers read after their writes.
    await sleep(2_000);
    const cost = (await cluster.metrics()).costOf(resource, before.metrics);
    outcomes.push({
      scenario,
      cost: multiply(cost, factor),
      cpuMs: (publishers.cpuMs - before.cpuMs) * factor,
      ...(writtenMs === undefined ? {} : { writtenMs }),
    });
  };
  const count = cluster.nodes.length;
  await play('start', () => publishers.publish(devices.all), count);
  await play('update', () => publishers.replace(), 0);
  await play('failure', () => publishers.publish(devices.left), count);
  await play('repair', () => publishers.publish(devices.all), count);
  await play('noCarrier', () => publishers.publish(devices.tainted), count);
  await play('carrier', () => publishers.publish(devices.all), count);
  // The mutation cache and the checks after a write have settled.
  await sleep(35_000);
  await play('rest', () => sleep(restSeconds * 1_000), 0, 3_600 / restSeconds);
  return outcomes;
}

function multiply(cost: Cost, factor: number): Cost {
  const { reads, writes, receivedBytes, sentBytes, watchedBytes, refused } = cost;
  return {
    ...{ reads: reads * factor, writes: writes * factor, receivedBytes: receivedBytes * factor },
    ...{ sentBytes: sentBytes * factor, watchedBytes: watchedBytes * factor, refused: refused * factor },
  };
}
