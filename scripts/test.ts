/**
 * `npm test`: what shows in minutes, on any Linux machine, whether a change is good. Needs no root, no Go, no Kubernetes and no
 * container engine: what cannot run is named with the reason. Exits with 0 if nothing failed.
 */
import { announce, runStages } from './tests/run.ts';
import { shortStages } from './tests/short-parts.ts';

announce('npm test', shortStages);
console.log('npm run test:all runs the rest: clusters, virtual machines, kind, the release, the site.\n');
process.exitCode = (await runStages(shortStages, false)) ? 0 : 1;
