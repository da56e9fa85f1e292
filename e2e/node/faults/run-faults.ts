import { FaultNode } from './fault-node.ts';
import { Lifecycle, LossError, type Phase, phases, type Scenario, scenarios } from './lifecycle.ts';

export interface FaultOptions {
  /** Default: all. */
  scenarios?: readonly Scenario[];
  phases?: readonly Phase[];
  /** Only each Nth point, default 1. */
  every?: number;
  /** Only this point, from 1. */
  at?: number;
  /** Receives a line about each loss, and about the progress. */
  report?: (line: string) => void;
}

/** Results of killing the driver in one phase of a pod's life. */
export interface FaultRow {
  scenario: Scenario;
  phase: Phase;
  points: number;
  injected: number;
  survived: number;
  lost: string[];
}

/** Kills the driver at each of its points, one after the other, and checks the effect on the pod. */
export async function runFaults(options: FaultOptions): Promise<FaultRow[]> {
  await using node = await FaultNode.start();
  const run = new FaultRun(node, options);
  const rows: FaultRow[] = [];
  for (const scenario of options.scenarios ?? scenarios) {
    for (const phase of options.phases ?? phases) rows.push(await run.phase(scenario, phase));
  }
  return rows;
}

/** The rows as a text table, with a sum. */
export function formatFaults(rows: FaultRow[]): string {
  const line = (scenario: string, phase: string, numbers: (string | number)[]) =>
    `${scenario.padEnd(8)}  ${phase.padEnd(9)}${numbers.map((each) => String(each).padStart(8)).join('  ')}`;
  const sum = (count: (row: FaultRow) => number) => rows.reduce((total, row) => total + count(row), 0);
  const numbersOf = ({ points, injected, survived, lost }: FaultRow) => [points, injected, survived, lost.length];
  return [
    line('scenario', 'phase', ['points', 'injected', 'survived', 'lost']),
    ...rows.map((row) => line(row.scenario, row.phase, numbersOf(row))),
    line(
      'all',
      '',
      [0, 1, 2, 3].map((column) => sum((row) => numbersOf(row)[column] ?? 0)),
    ),
  ].join('\n');
}

/** Runs can differ: a point that is not reached is not a loss, but was not tested either. */
class NotReachedError extends Error {}

class FaultRun {
  readonly #node: FaultNode;
  readonly #options: FaultOptions;
  #podCount = 0;

  constructor(node: FaultNode, options: FaultOptions) {
    this.#node = node;
    this.#options = options;
  }

  async phase(scenario: Scenario, phase: Phase): Promise<FaultRow> {
    const { every = 1, at, report } = this.#options;
    const points = await this.#live(scenario, phase);
    const row: FaultRow = { scenario, phase, points: points.length, injected: 0, survived: 0, lost: [] };
    for (const [index, point] of points.entries()) {
      const number = index + 1;
      if (at === undefined ? index % every !== 0 : number !== at) continue;
      await this.#inject(row, number, point);
    }
    report?.(`${scenario}, ${phase}: ${row.survived} of ${row.injected} survived`);
    return row;
  }

  async #inject(row: FaultRow, number: number, point: string): Promise<void> {
    const { scenario, phase } = row;
    try {
      await this.#live(scenario, phase, number);
      row.injected += 1;
      row.survived += 1;
    } catch (error) {
      await this.#node.recover();
      if (error instanceof NotReachedError) return;
      row.injected += 1;
      const message = error instanceof Error ? error.message : String(error);
      row.lost.push(`${scenario}, ${phase}, before point ${number} (${point}): ${message}`);
      this.#options.report?.(`LOST ${row.lost.at(-1)}`);
    }
  }

  /** A pod's whole life, with the driver killed at a point of one phase; without a point it is not killed. */
  async #live(scenario: Scenario, killed: Phase, killAt?: number): Promise<string[]> {
    await this.#node.startDriver(killAt);
    const lifecycle = new Lifecycle(this.#node, scenario, `pod-${++this.#podCount}`);
    let points: string[] = [];
    for (const phase of phases) {
      if (phase === killed) points = await this.#killIn(lifecycle, phase, killAt);
      await lifecycle.repeat(phase);
    }
    lifecycle.checkClean();
    await this.#node.stopDriver();
    return points;
  }

  /** @returns the points reached */
  async #killIn(lifecycle: Lifecycle, phase: Phase, killAt: number | undefined): Promise<string[]> {
    const node = this.#node;
    node.arm();
    const run = lifecycle.run(phase).then(
      () => undefined,
      (error: unknown) => error,
    );
    const wasKilled = await node.wasKilledIn(run);
    const points = node.disarm();
    // A container may be waiting for it.
    if (wasKilled) await node.startDriver();
    const failure = await run;
    if (failure instanceof LossError || (failure !== undefined && killAt === undefined)) throw failure;
    if (killAt !== undefined && !wasKilled) throw new NotReachedError(`only ${points.length} points this time`);
    return points;
  }
}
