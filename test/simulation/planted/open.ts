import type { Simulation } from '../simulation.ts';
import { plantedBugs } from './bugs.ts';
import { loadPlanted } from './plant.ts';

/**
 * @param planted name of a planted bug: all code of the project is then loaded with it
 * @throws Error if the bug does not exist, or its place in the code no longer exists
 */
export async function openSimulation(planted?: string): Promise<Simulation> {
  const bug = plantedBugs.find(({ name }) => name === planted);
  if (planted !== undefined && bug === undefined) throw new Error(`there is no planted bug ${planted}`);
  const loaded =
    bug === undefined ? await import('../simulation.ts') : await loadPlanted('test/simulation/simulation.ts', bug);
  return new (loaded as typeof import('../simulation.ts')).Simulation();
}
