import { mkdirSync } from 'node:fs';
import { Store } from '../../src/driver/state/index.ts';
import { Violation } from './checks.ts';
import { MemoryDatabases } from './databases.ts';
import type { Disk } from './disk.ts';
import { type Directories, directoriesOf } from './instance.ts';
import type { Plan } from './plan.ts';
import type { Plant } from './planted/plant.ts';
import { EndlessSchedule, Simulator, type TraceLine } from './simulator.ts';
import type { Tape } from './tape.ts';
import { Node } from './world.ts';

/** The result of a schedule. */
export interface Outcome {
  /** Absent: no rule was broken. */
  violation?: { rule: string; message: string };
  steps: number;
  /** The change that the first instance of the driver was killed before, if it was. */
  diedBefore?: string | undefined;
  trace: readonly TraceLine[];
}

/** Files and databases for successive schedules. */
export class Workplace implements Disposable {
  readonly directories: Directories;
  readonly disk: Disk;
  readonly plant: Plant | undefined;
  readonly databases = new MemoryDatabases();

  constructor(disk: Disk, plant?: Plant) {
    this.plant = plant;
    this.directories = { root: disk.files.root };
    this.disk = disk;
    const { database } = directoriesOf(this.directories);
    new Store(database, { bootId: 'boot-1', open: (path, options) => this.databases.open(path, options) })[
      Symbol.dispose
    ]();
  }

  clear(): void {
    this.disk.files.clear();
    const { cdiDir, database } = directoriesOf(this.directories);
    mkdirSync(cdiDir, { recursive: true });
    const opened = this.databases.open(database);
    for (const table of ['devices', 'claims', 'unrestored', 'records', 'conditions'])
      opened.prepare(`DELETE FROM ${table}`).run();
    opened.close();
  }

  [Symbol.dispose](): void {
    this.databases[Symbol.dispose]();
  }
}

/** @param plan what happens; default: what the tape says */
export async function runSchedule(tape: Tape, place: Workplace, isTraced = false, plan?: Plan): Promise<Outcome> {
  place.clear();
  const simulator = new Simulator(tape, isTraced);
  const node = new Node(simulator, place, plan);
  const finish = (violation?: Outcome['violation']): Outcome => ({
    ...(violation === undefined ? {} : { violation }),
    steps: simulator.steps,
    diedBefore: node.instances[0]?.process.diedBefore,
    trace: simulator.lines ?? [],
  });
  const onRejection = (reason: unknown) => node.onSurprise(reason);
  // Would end the driver.
  process.on('unhandledRejection', onRejection);
  try {
    await node.run();
    return finish();
  } catch (error) {
    if (error instanceof Violation) return finish({ rule: error.rule, message: error.message });
    if (error instanceof EndlessSchedule) return finish({ rule: 'endless', message: error.message });
    return finish({
      rule: 'crash',
      message: `crash: ${error instanceof Error ? (error.stack ?? error.message) : error}`,
    });
  } finally {
    node.end();
    process.off('unhandledRejection', onRejection);
  }
}
