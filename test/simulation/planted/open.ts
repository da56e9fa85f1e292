import type { Mode } from '../modes.ts';
import { Simulation } from '../simulation.ts';
import { plantedBugs } from './bugs.ts';

/**
 * @param planted name of a planted bug, which all instances of the driver then have
 * @throws Error if the bug does not exist
 */
export function openSimulation(planted?: string, mode?: Mode): Simulation {
  const bug = plantedBugs.find(({ name }) => name === planted);
  if (planted !== undefined && bug === undefined) throw new Error(`there is no planted bug ${planted}`);
  return new Simulation(bug?.plant, mode);
}
