/**
 * `npm run bench`: builds and fetches the programs with which the selected benches compare the driver, and starts them
 * on a separate node without a network.
 */
import { print } from '../../e2e/cluster/launch.ts';
import { fetchClusterPrograms, testedPairs, toEnv } from '../../e2e/cluster/programs.ts';
import { cacheFolder } from '../../e2e/node/tools.ts';
import { runCommand } from '../../scripts/run-command.ts';
import { explain, NetdraError } from '../../src/errors.ts';
import { chosenNames } from './chosen-names.ts';

const args = process.argv.slice(2);

async function run(): Promise<boolean> {
  const needsGo = chosenNames(args)?.some((name) => name.startsWith('go')) ?? true;
  const env = needsGo ? toEnv(await fetchClusterPrograms(cacheFolder(process.env), testedPairs[0], print)) : {};
  return (await runCommand(['bash', 'scripts/in-node.sh', 'node', 'test/bench/run.ts', ...args], env, true)).succeeded;
}

try {
  process.exitCode = (await run()) ? 0 : 1;
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  print(explain(error));
  if (error.code !== 'wrong-usage')
    print('without Go: npm run bench -- --only start,memory,hook,hostile,publish,containerd');
  process.exitCode = 1;
}
