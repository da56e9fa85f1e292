/**
 * `npm test`: checks a change within minutes on any Linux machine, without root, Go, Kubernetes or a container engine. Lists parts
 * that cannot run, with the reason; with CI in the environment they fail. Exits with 0 if nothing failed.
 */
import { announce, runStages } from './tests/run.ts';
import { shortStages } from './tests/short-parts.ts';

announce('npm test', shortStages);
console.log('npm run test:all runs the rest: clusters, virtual machines, kind, the release, the site.\n');
process.exitCode = (await runStages(shortStages, Boolean(process.env.CI))) ? 0 : 1;
