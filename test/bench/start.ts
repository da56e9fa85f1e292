/**
 * `npm run bench`: builds and fetches the programs that the chosen benches compare the driver with, and starts them on a node
 * of their own, where there is no network.
 */
import { print, runOnCluster } from '../../e2e/cluster/launch.ts';
import { runCommand } from '../../scripts/run-command.ts';
import { explain, NetdraError } from '../../src/errors.ts';
import { chosenNames } from './chosen-names.ts';

const args = process.argv.slice(2);
const command = ['node', 'test/bench/run.ts', ...args];

async function run(): Promise<boolean> {
  if (chosenNames(args)?.includes('go') === false) {
    return (await runCommand(['bash', 'scripts/in-node.sh', ...command], {}, true)).succeeded;
  }
  return (await runOnCluster({ kubernetes: '1.36', runtime: 'containerd-2.1' }, command)).succeeded;
}

try {
  process.exitCode = (await run()) ? 0 : 1;
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  print(`${explain(error)}\nWithout Go: npm run bench -- --only start,memory,hook,prepare,publish,containerd`);
  process.exitCode = 1;
}
