import { Disk } from './disk.ts';
import { drawPlan, type Plan } from './plan.ts';
import type { Plant } from './planted/plant.ts';
import { type Outcome, runSchedule, Workplace } from './schedule.ts';
import { shrink } from './shrink.ts';
import { Tape } from './tape.ts';

/** A violation that a seed has shown. */
export interface Finding {
  seed: number;
  rule: string;
  message: string;
  /** Its tape, as short as possible in the available time; absent if shortening was not tried. */
  shortest: readonly number[] | undefined;
}

/** Runs schedules one after the other. Must be disposed of: it patches `node:fs` while it exists. */
export class Simulation implements Disposable {
  readonly #disk = new Disk();
  readonly #place: Workplace;

  /** @param plant a bug for the driver */
  constructor(plant?: Plant) {
    this.#place = new Workplace(this.#disk, plant);
  }

  async run(seed: number, isTraced = false): Promise<Outcome & { values: readonly number[] }> {
    const tape = Tape.ofSeed(seed);
    const outcome = await runSchedule(tape, this.#place, isTraced);
    return { ...outcome, values: tape.taken };
  }

  async replay(values: readonly number[], isTraced = false): Promise<Outcome> {
    return await runSchedule(Tape.of(values), this.#place, isTraced);
  }

  /** @param change of a plan without faults: a pod runs and ends. All else is the ordinary case */
  async runPlan(change: (plan: Plan) => Plan): Promise<Outcome> {
    const tape = Tape.of([]);
    return await runSchedule(tape, this.#place, true, change(drawPlan(tape)));
  }

  /** The shortest schedule found in time that breaks the same rule. */
  async shorten(values: readonly number[], rule: string, withinMs: number): Promise<readonly number[]> {
    const endsAtMs = performance.now() + withinMs;
    const shows = async (candidate: readonly number[]) => (await this.replay(candidate)).violation?.rule === rule;
    return await shrink(values, shows, () => performance.now() > endsAtMs);
  }

  [Symbol.dispose](): void {
    this.#place[Symbol.dispose]();
    this.#disk[Symbol.dispose]();
  }
}
