import { mkdirSync, rmSync } from 'node:fs';
import { type Database, Store } from '../../src/driver/state/index.ts';
import { Violation } from './checks.ts';
import { MemoryDatabases } from './databases.ts';
import type { Disk } from './disk.ts';
import { type Directories, directoriesOf } from './instance.ts';
import type { Plant } from './planted/plant.ts';
import { EndlessSchedule, Simulator, type TraceLine } from './simulator.ts';
import type { Tape } from './tape.ts';
import { Node } from './world.ts';

/** The result of a schedule. */
export interface Outcome {
  /** Absent: no rule was broken. */
  violation?: { rule: string; message: string };
  steps: number;
  trace: readonly TraceLine[];
}

/** Files for successive schedules; on a tmpfs, or else it is slow. */
export class Workplace implements Disposable {
  readonly directories: Directories;
  readonly disk: Disk;
  readonly plant: Plant | undefined;
  readonly databases = new MemoryDatabases();
  readonly #database: Database;

  constructor(root: string, disk: Disk, plant?: Plant) {
    this.plant = plant;
    this.directories = { root };
    this.disk = disk;
    const { database } = directoriesOf(this.directories);
    // It exists while a connection to it is open.
    this.#database = this.databases.open(database);
    new Store(database, { bootId: 'boot-1', open: (path, options) => this.databases.open(path, options) })[
      Symbol.dispose
    ]();
  }

  clear(): void {
    const { dataDir, cdiDir } = directoriesOf(this.directories);
    rmSync(dataDir, { recursive: true, force: true });
    rmSync(cdiDir, { recursive: true, force: true });
    mkdirSync(cdiDir, { recursive: true });
    this.#database.exec('DELETE FROM devices; DELETE FROM claims; DELETE FROM unrestored');
  }

  [Symbol.dispose](): void {
    this.#database.close();
    this.databases[Symbol.dispose]();
    rmSync(this.directories.root, { recursive: true, force: true });
  }
}

export async function runSchedule(tape: Tape, place: Workplace, isTraced = false): Promise<Outcome> {
  place.clear();
  const simulator = new Simulator(tape, isTraced);
  const node = new Node(simulator, place);
  const finish = (violation?: Outcome['violation']): Outcome => ({
    ...(violation === undefined ? {} : { violation }),
    steps: simulator.steps,
    trace: simulator.lines ?? [],
  });
  try {
    await node.run();
    return finish();
  } catch (error) {
    if (error instanceof Violation) return finish({ rule: error.rule, message: error.message });
    if (error instanceof EndlessSchedule) return finish({ rule: 'endless', message: error.message });
    throw error;
  } finally {
    node.end();
  }
}
