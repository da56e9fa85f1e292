import { agents, Fleet, type FleetOptions } from './fleet.ts';
import { byKind, type Call, type Cost, peakPerSecond } from './traffic.ts';

const minuteMs = 60_000;

/** A scenario and its cost. */
export interface Outcome {
  name: ScenarioName;
  /** Costs of one node, by kind of request. */
  perNode: Map<string, Cost>;
  /** Maximum number of requests within a second, from all nodes. */
  peakPerSecond: number;
  /** Bytes received by the driver's own watch on a node. */
  eventBytesPerNode: number;
  /** Bytes per node received by a client that watches everything, like the scheduler. */
  watchedBytesPerNode: number;
}

export const scenarios = {
  start: 'every driver starts at the same moment',
  hour: 'an hour without changes; the API server ends all watches once, at the same moment',
  change: 'a VF vanishes on every node',
  outage: 'the API server is gone for a minute, and two minutes after it',
  'pod start': 'a pod with one VF starts on every node',
  'pod end': 'it ends, and its claim is deallocated',
} as const;
export type ScenarioName = keyof typeof scenarios;

/** Runs all scenarios, one after the other, on one fleet. */
export async function playScenarios(options: FleetOptions): Promise<Outcome[]> {
  await using fleet = await Fleet.create(options);
  const outcomes: Outcome[] = [];
  const { traffic } = fleet;
  const eventBytes = () => ({ own: traffic.watchedBytes(agents.driver), all: traffic.watchedBytes(agents.scheduler) });
  const play = async (name: ScenarioName, task: () => Promise<unknown>) => {
    const before = { calls: traffic.calls.length, bytes: eventBytes() };
    await task();
    const calls = traffic.calls.slice(before.calls).filter(({ agent }) => agent === agents.driver);
    const { own, all } = eventBytes();
    outcomes.push({
      name,
      perNode: byKindPerNode(calls, options.nodes),
      peakPerSecond: peakPerSecond(calls),
      eventBytesPerNode: (own - before.bytes.own) / options.nodes,
      watchedBytesPerNode: (all - before.bytes.all) / options.nodes,
    });
  };
  await play('start', () => fleet.publish());
  await play('change', () => fleet.loseVf());
  const claims: Awaited<ReturnType<Fleet['startPods']>> = [];
  await play('pod start', async () => claims.push(...(await fleet.startPods(1))));
  // Not counted: the claim controller does this, not the driver.
  fleet.deallocate(claims);
  await play('pod end', async () => {
    await fleet.endPods(claims);
    // Drivers remove the status of a claim five seconds after it is unprepared.
    await fleet.pass(6_000);
  });
  await play('hour', async () => {
    await fleet.pass(30 * minuteMs);
    fleet.api.endWatches();
    await fleet.pass(30 * minuteMs);
  });
  await play('outage', async () => {
    const outage = fleet.api.failNext('/', 503, { times: Infinity });
    fleet.api.dropConnections();
    await fleet.pass(minuteMs);
    outage[Symbol.dispose]();
    await fleet.pass(2 * minuteMs);
  });
  return outcomes;
}

function byKindPerNode(calls: Call[], nodes: number): Map<string, Cost> {
  const entries = [...byKind(calls)].map(([kind, cost]): [string, Cost] => [
    kind,
    { calls: cost.calls / nodes, receivedBytes: cost.receivedBytes / nodes, sentBytes: cost.sentBytes / nodes },
  ]);
  return new Map(entries);
}
