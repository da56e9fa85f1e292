import { plantedBugs } from './planted/bugs.ts';
import { loadPlanted } from './planted/plant.ts';
import type { Finding, Simulation } from './simulation.ts';

/** What a worker is asked for. */
export interface WorkerTask {
  /** Name of a planted bug. */
  planted?: string;
  from: number;
  count: number;
  /** Ends with the first finding. */
  stopsAtFirst: boolean;
  shrinkMs: number;
}

export type WorkerMessage =
  | { type: 'progress'; schedules: number; steps: number }
  | { type: 'finding'; finding: Finding; schedules: number }
  | { type: 'done'; schedules: number; steps: number };

const progressEvery = 50;
const maxFindings = 5;

async function work(task: WorkerTask, send: (message: WorkerMessage) => void): Promise<void> {
  using simulation = await open(task.planted);
  let findings = 0;
  let steps = 0;
  let schedules = 0;
  for (let seed = task.from; seed < task.from + task.count; seed++) {
    const { violation, values, steps: taken } = await simulation.run(seed);
    schedules += 1;
    steps += taken;
    if (schedules % progressEvery === 0) send({ type: 'progress', schedules, steps });
    if (violation === undefined) continue;
    const { rule, message } = violation;
    const shortest = task.shrinkMs === 0 ? values : await simulation.shorten(values, rule, task.shrinkMs);
    send({ type: 'finding', finding: { seed, rule, message, values: shortest }, schedules });
    if (task.stopsAtFirst || ++findings >= maxFindings) break;
  }
  send({ type: 'done', schedules, steps });
}

/** With a planted bug, all code of the project is loaded with it. */
export async function open(planted?: string): Promise<Simulation> {
  const file = 'test/simulation/simulation.ts';
  const bug = plantedBugs.find(({ name }) => name === planted);
  if (planted !== undefined && bug === undefined) throw new Error(`there is no planted bug ${planted}`);
  const loaded = bug === undefined ? await import('./simulation.ts') : await loadPlanted(file, bug);
  return new (loaded as typeof import('./simulation.ts')).Simulation();
}

if (process.send !== undefined) {
  process.once('message', (task: WorkerTask) => {
    void work(task, (message) => process.send?.(message)).then(() => process.disconnect());
  });
}
