/**
 * The cases on a real cluster whose node has real VFs: `npm run e2e:vm-cluster -- [VITEST_ARGUMENT...]`. Fetches and builds
 * their requirements, and starts them without a network. Exits with 0 if all tests passed.
 */
import { join } from 'node:path';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';
import { repository } from '../../../scripts/run-command.ts';
import { explain, NetdraError } from '../../../src/lib/errors.ts';
import { print, runOnCluster } from '../../cluster/launch.ts';
import { testedPairs } from '../../cluster/programs.ts';
import { takeMachineParts } from '../parts.ts';

try {
  const cacheDir = join(cacheFolder(process.env), 'vm');
  takeMachineParts({ repository, cacheDir, log: print }).lock[Symbol.dispose]();
  const tests = ['vitest', 'run', '--config', 'e2e/vm/cluster/vitest.config.ts', ...process.argv.slice(2)];
  process.exitCode = (await runOnCluster(testedPairs[0], tests)).succeeded ? 0 : 1;
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  print(explain(error));
  process.exitCode = 1;
}
