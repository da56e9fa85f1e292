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
  pfDown: 'a PF loses its carrier on every node at once: half of the VFs get a taint',
  pfUp: 'its carrier is back',
  policyChanged: 'a policy is changed, and all nodes accept it',
  policyRefused: 'it is changed, and all nodes refuse it',
  policyMended: 'it is changed back',
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

/** Time for requests after the last write of a scenario, and for those that come later, before the rest. */
const pauses = {
  // The mutation cache and the checks after a write.
  resourceslices: { afterMs: 2_000, beforeRestMs: 35_000 },
  // Changes are collected for 10 s; two minutes after its start an instance reads the object once more.
  nodenetworkdevices: { afterMs: 12_000, beforeRestMs: 160_000 },
  // Refusals are collected for 10 s.
  networkdevicepolicies: { afterMs: 12_000, beforeRestMs: 5_000 },
};

/** Runs the scenarios of slices with the given publishers. */
export async function playPublishing(options: PlayOptions, devices: DeviceFiles): Promise<Outcome[]> {
  const { publishers } = options;
  const publish = (path: string) => () => publishers.publish(path);
  return await play(options, 'resourceslices', [
    ['start', publish(devices.all)],
    ['update', () => publishers.replace()],
    ['failure', publish(devices.left)],
    ['repair', publish(devices.all)],
  ]);
}

/** Runs the scenarios of NodeNetworkDevices. @param views files with a node as it is, and with a PF without carrier */
export async function playViews(options: PlayOptions, views: Record<'up' | 'down', string>): Promise<Outcome[]> {
  const { publishers } = options;
  const show = (path: string) => () => publishers.view(path);
  return await play(options, 'nodenetworkdevices', [
    ['start', show(views.up)],
    ['update', () => publishers.replace()],
    ['pfDown', show(views.down)],
    ['pfUp', show(views.up)],
  ]);
}

/** Runs the scenarios of a NetworkDevicePolicy. @param change makes all nodes accept it, or refuse it */
export async function playPolicies(options: PlayOptions, change: (isRefused: boolean) => Promise<void>) {
  const { publishers } = options;
  return await play(options, 'networkdevicepolicies', [
    ['start', () => publishers.followPolicies(), 0],
    ['update', () => publishers.replace()],
    ['policyChanged', () => change(false), 1],
    ['policyRefused', () => change(true), 1],
    ['policyMended', () => change(false), 1],
  ]);
}

/** Runs the scenarios one after the other, and then the rest. All of them but an update write an object for each node, or as often as they say. */
async function play(
  { cluster, publishers, restSeconds, progress }: PlayOptions,
  resource: keyof typeof pauses,
  scenarios: [Scenario, task: () => Promise<void>, writes?: number][],
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  const { afterMs, beforeRestMs } = pauses[resource];
  const measure = async (scenario: Scenario, task: () => Promise<void>, writes: number, factor = 1) => {
    progress(`${resource}: ${scenario}`);
    const before = { metrics: await cluster.metrics(), cpuMs: publishers.cpuMs };
    const startedAt = performance.now();
    await task();
    const writtenMs = writes > 0 ? await cluster.untilWritten(resource, writes, before.metrics, startedAt) : undefined;
    await sleep(afterMs);
    const cost = (await cluster.metrics()).costOf(resource, before.metrics);
    outcomes.push({
      scenario,
      cost: multiply(cost, factor),
      cpuMs: (publishers.cpuMs - before.cpuMs) * factor,
      ...(writtenMs === undefined ? {} : { writtenMs }),
    });
  };
  for (const [scenario, task, writes = scenario === 'update' ? 0 : cluster.nodes.length] of scenarios) {
    await measure(scenario, task, writes);
  }
  await sleep(beforeRestMs);
  await measure('rest', () => sleep(restSeconds * 1_000), 0, 3_600 / restSeconds);
  return outcomes;
}

function multiply(cost: Cost, factor: number): Cost {
  const { reads, writes, receivedBytes, sentBytes, watchedBytes, refused } = cost;
  return {
    ...{ reads: reads * factor, writes: writes * factor, receivedBytes: receivedBytes * factor },
    ...{ sentBytes: sentBytes * factor, watchedBytes: watchedBytes * factor, refused: refused * factor },
  };
}
