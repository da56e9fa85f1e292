/** The suite on a Kubernetes cluster: `npm run e2e:kind -- --help`. Exits with 0 if all tests passed, 2 for wrong usage. */
import { CommanderError } from 'commander';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { runOnOwnEngine } from './engine/machine.ts';
import { parseSettings } from './settings.ts';
import { runSuite } from './suite.ts';

const print = (line: string) => console.error(`netdra: ${line}`);
// Running programs also receive the signal and end: after that the left-overs can be reported.
process.on('SIGINT', () => print('interrupted'));
try {
  const settings = parseSettings(process.argv.slice(2), process.env);
  const succeeded =
    settings.mode === 'kind' && settings.engine === 'own'
      ? await runOnOwnEngine(settings, process.env, print)
      : await runSuite(settings, { env: process.env, print });
  process.exitCode = succeeded ? 0 : 1;
} catch (error) {
  if (error instanceof CommanderError) {
    // Commander has already printed the reason.
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  } else {
    if (!(error instanceof NetdraError)) throw error;
    print(explain(error));
    process.exitCode = error.code === 'setting-missing' ? 2 : 1;
  }
}
