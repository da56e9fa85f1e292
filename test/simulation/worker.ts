import type { Mode } from './modes.ts';
import { drawPlan } from './plan.ts';
import { plantedBugs } from './planted/bugs.ts';
import { openSimulation } from './planted/open.ts';
import type { Finding } from './simulation.ts';
import { Tape } from './tape.ts';

/** The task of a worker. */
export interface WorkerTask {
  /** Name of a planted bug. */
  planted?: string;
  mode?: Mode | undefined;
  from: number;
  /** How many schedules to run; those that cannot show the planted bug are passed over. */
  count: number;
  /** Ends at the first finding. */
  stopsAtFirst: boolean;
  shrinkMs: number;
}

export type WorkerMessage =
  | { type: 'begin'; seed: number; schedules: number; steps: number }
  | { type: 'finding'; finding: Finding; schedules: number }
  | { type: 'done'; schedules: number; steps: number };

const maxFindings = 20;
/** Most of the later ones have the same cause. */
const maxShortened = 3;

async function work(task: WorkerTask, send: (message: WorkerMessage) => Promise<void>): Promise<void> {
  using simulation = openSimulation(task.planted, task.mode);
  let findings = 0;
  let steps = 0;
  let schedules = 0;
  const { needs } = plantedBugs.find(({ name }) => name === task.planted) ?? {};
  for (let seed = task.from; schedules < task.count; seed++) {
    if (needs?.(drawPlan(Tape.ofSeed(seed))) === false) continue;
    await send({ type: 'begin', seed, schedules, steps });
    const { violation, values, steps: taken } = await simulation.run(seed);
    schedules += 1;
    steps += taken;
    if (violation === undefined) continue;
    const { rule, message } = violation;
    findings += 1;
    const isShortened = task.shrinkMs > 0 && findings <= maxShortened;
    const shortest = isShortened ? await simulation.shorten(values, rule, task.shrinkMs) : undefined;
    await send({ type: 'finding', finding: { seed, rule, message, shortest }, schedules });
    if (task.stopsAtFirst || findings >= maxFindings) break;
  }
  await send({ type: 'done', schedules, steps });
}

/** Messages that are not yet sent when the connection ends are lost. */
function send(message: WorkerMessage): Promise<void> {
  return new Promise((resolve) => {
    process.send?.(message, undefined, undefined, () => resolve());
  });
}

// Runs in a separate process, which gets its task as a message and ends with the process that sent it.
process.once('disconnect', () => process.exit());
process.once('message', (task: WorkerTask) => {
  void work(task, send).then(() => process.disconnect());
});
