import { Simulation } from '../simulation.ts';
import { plantedBugs } from './bugs.ts';
import type { PlantedBug } from './plant.ts';

/** @throws Error if the bug does not exist */
export function findBug(name: string): PlantedBug {
  const bug = plantedBugs.find((each) => each.name === name);
  if (bug === undefined) throw new Error(`there is no planted bug ${name}`);
  return bug;
}

/**
 * @param planted name of a planted bug, which all instances of the driver then have
 * @throws Error if the bug does not exist
 */
export function openSimulation(planted?: string): Simulation {
  return new Simulation(planted === undefined ? undefined : findBug(planted).plant);
}
