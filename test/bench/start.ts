/**
 * `npm run bench`: builds and fetches the programs with which the selected benches compare the driver, and starts them
 * on a separate node without a network.
 */
import { print } from '../../e2e/cluster/launch.ts';
import { fetchClusterPrograms, testedPairs, toEnv } from '../../e2e/cluster/programs.ts';
import { fetchHelm } from '../../e2e/release/helm.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { runCommand } from '../../scripts/run-command.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { chosenNames } from './chosen-names.ts';

const args = process.argv.slice(2);

async function run(): Promise<boolean> {
  const needsGo = chosenNames(args)?.some((name) => name.startsWith('go')) ?? true;
  const env = needsGo ? await fetchForGo() : {};
  return (await runCommand(['bash', 'scripts/in-node.sh', 'node', 'test/bench/run.ts', ...args], env, true)).succeeded;
}

async function fetchForGo(): Promise<Record<string, string>> {
  const cacheDir = cacheFolder(process.env);
  // The API server gets the objects of the chart, by the newest Helm.
  await fetchHelm(cacheDir, print, ['helm-4']);
  return toEnv(await fetchClusterPrograms(cacheDir, testedPairs[0], print));
}

try {
  process.exitCode = (await run()) ? 0 : 1;
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  print(explain(error));
  if (error.code !== 'wrong-usage') print('without Go: npm run bench -- --only start,pod,memory,rest');
  process.exitCode = 1;
}
