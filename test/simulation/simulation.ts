import { Disk } from './disk.ts';
import { inMode, type Mode } from './modes.ts';
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

  readonly #mode: Mode | undefined;
  /** In the mode `crashes`: what the schedule that was run last was killed before. */
  #crashBefore: number | undefined;

  /** @param plant a bug for the driver */
  constructor(plant?: Plant, mode?: Mode) {
    this.#place = new Workplace(this.#disk, plant);
    this.#mode = mode;
  }

  /** In the mode `crashes` until a rule is broken, or until the first instance is not killed any more. */
  async run(seed: number, isTraced = false): Promise<Outcome & { values: readonly number[] }> {
    let steps = 0;
    for (let crashBefore = 1; ; crashBefore++) {
      this.#crashBefore = this.#mode === 'crashes' ? crashBefore : undefined;
      const tape = Tape.ofSeed(seed);
      const outcome = await this.#runTape(tape, isTraced);
      steps += outcome.steps;
      const isLast = this.#crashBefore === undefined || outcome.diedBefore === undefined;
      if (isLast || outcome.violation !== undefined) return { ...outcome, steps, values: tape.taken };
    }
  }

  async replay(values: readonly number[], isTraced = false): Promise<Outcome> {
    return await this.#runTape(Tape.of(values), isTraced);
  }

  async #runTape(tape: Tape, isTraced: boolean): Promise<Outcome> {
    const plan = inMode(drawPlan(tape), this.#mode, this.#crashBefore);
    return await runSchedule(tape, this.#place, isTraced, plan);
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
