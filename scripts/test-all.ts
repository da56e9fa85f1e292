/** `npm run test:all`: runs all tests, see `--help`. Exits with 0 if nothing failed, 2 for wrong usage. */
import { parseArgs } from 'node:util';
import { restStages } from './tests/rest-parts.ts';
import { announce, listParts, runStages, type Stage, selectParts } from './tests/run.ts';
import { shortStages } from './tests/short-parts.ts';

const usage = `usage: npm run test:all [-- OPTION...]

Runs all tests. Programs that they need are built first, into \${XDG_CACHE_HOME:-~/.cache}/netdra. Cases of clusters and virtual
machines that fail are run once more in the end, alone; those that pass then are listed in test-results/second-attempts.txt.
With CI in the environment a part that cannot run fails the run.

--list         print the parts, with what they need and how long they take
--part NAME    only this part; can be given again
--rest         only what npm test does not run
`;

function choose(): readonly Stage[] | undefined {
  const { values } = parseArgs({
    options: {
      list: { type: 'boolean', default: false },
      part: { type: 'string', multiple: true, default: [] },
      rest: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const stages = values.rest ? restStages : [...shortStages, ...restStages];
  if (values.help || values.list) {
    console.log(values.help ? usage : listParts(stages));
    return undefined;
  }
  return selectParts(stages, values.part);
}

let stages: readonly Stage[] | undefined;
try {
  stages = choose();
} catch (error) {
  console.error(`test:all: ${(error as Error).message}\n\n${usage}`);
  process.exitCode = 2;
}
if (stages !== undefined) {
  announce('npm run test:all', stages);
  process.exitCode = (await runStages(stages, Boolean(process.env.CI))) ? 0 : 1;
}
