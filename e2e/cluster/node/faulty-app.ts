import { startApp as startOwnApp } from '../../../src/app/app.ts';
import { plantedBugs } from '../../../test/simulation/planted/bugs.ts';

/** In the place of that of the driver, whose ports then have the planted bug that the environment names. */
export const startApp: typeof startOwnApp = async (settings, logger) => {
  const name = process.env.PLANTED_BUG;
  const bug = plantedBugs.find((each) => each.name === name);
  if (bug === undefined) throw new Error(`there is no planted bug ${name}`);
  const { cdiDir, kubeletPluginsDir, driverName } = settings;
  const directories = { cdiDir, dataDir: `${kubeletPluginsDir}/${driverName}` };
  return await startOwnApp(settings, logger, (ports) => bug.plant(ports, directories));
};
