import { parseArgs } from 'node:util';
import { FaultNode } from './fault-node.ts';
import { Lifecycle, type Phase, phases, type Scenario, scenarios, WrongMetadataError } from './lifecycle.ts';

/**
 * Kills the driver at each of its points, one after the other, and looks what becomes of the pod:
 * `node e2e/node/faults/faults.ts [--every N] [--scenario NAME] [--phase NAME] [--at N]`. Exits with 1 if anything is lost.
 */
const { values: options } = parseArgs({
  options: {
    /** Only each Nth point. */
    every: { type: 'string', default: '1' },
    scenario: { type: 'string' },
    phase: { type: 'string' },
    /** Only this point. */
    at: { type: 'string' },
  },
});

interface Row {
  scenario: Scenario;
  phase: Phase;
  points: number;
  injected: number;
  survived: number;
  lost: string[];
}

let podCount = 0;

/** A pod's whole life, with the driver killed at a point of one phase; without a point nothing happens to it. */
async function live(node: FaultNode, scenario: Scenario, killed: Phase, killAt?: number): Promise<string[]> {
  await node.startDriver(killAt);
  const lifecycle = new Lifecycle(node, scenario, `pod-${++podCount}`);
  let points: string[] = [];
  for (const phase of phases) {
    if (phase !== killed) {
      await lifecycle.repeat(phase);
      continue;
    }
    node.arm();
    const failure = await lifecycle.run(phase).then(
      () => undefined,
      (error: unknown) => error,
    );
    if (failure instanceof WrongMetadataError || (failure !== undefined && killAt === undefined)) throw failure;
    const wasKilled = await node.wasKilled();
    points = node.disarm();
    if (killAt !== undefined && !wasKilled) throw new NotReachedError(`only ${points.length} points this time`);
    if (wasKilled) await node.startDriver();
    await lifecycle.repeat(phase);
  }
  lifecycle.checkClean();
  await node.stopDriver();
  return points;
}

/** Not each run takes the same way: a point less is no loss, but nothing was shown either. */
class NotReachedError extends Error {}

async function runPhase(node: FaultNode, scenario: Scenario, phase: Phase): Promise<Row> {
  const points = await live(node, scenario, phase);
  const row: Row = { scenario, phase, points: points.length, injected: 0, survived: 0, lost: [] };
  const every = Number(options.every);
  for (const [index, point] of points.entries()) {
    const number = index + 1;
    if (options.at === undefined ? index % every !== 0 : number !== Number(options.at)) continue;
    try {
      await live(node, scenario, phase, number);
      row.injected += 1;
      row.survived += 1;
    } catch (error) {
      await node.recover();
      if (error instanceof NotReachedError) continue;
      row.injected += 1;
      const message = error instanceof Error ? error.message : String(error);
      row.lost.push(`${scenario}, ${phase}, before point ${number} (${point}): ${message}`);
      console.log(`LOST ${row.lost.at(-1)}`);
    }
  }
  return row;
}

async function main(): Promise<void> {
  await using node = await FaultNode.start();
  const rows: Row[] = [];
  for (const scenario of scenarios.filter((each) => options.scenario === undefined || each === options.scenario)) {
    for (const phase of phases.filter((each) => options.phase === undefined || each === options.phase)) {
      rows.push(await runPhase(node, scenario, phase));
    }
  }
  console.log('scenario  phase      points  injected  survived  lost');
  for (const { scenario, phase, points, injected, survived, lost } of rows) {
    const numbers = [points, injected, survived, lost.length].map((each) => String(each).padStart(8)).join('  ');
    console.log(`${scenario.padEnd(8)}  ${phase.padEnd(9)}${numbers}`);
  }
  const sum = (count: (row: Row) => number) => rows.reduce((total, row) => total + count(row), 0);
  console.log(`${sum(({ survived }) => survived)} survived, ${sum(({ lost }) => lost.length)} lost`);
  if (sum(({ lost }) => lost.length) > 0 || sum(({ injected }) => injected) === 0) process.exitCode = 1;
}

await main();
