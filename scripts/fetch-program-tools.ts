/**
 * Provides the requirements of the tests of `programs/` and `examples/`, before they run without a network:
 * `node scripts/fetch-program-tools.ts`.
 */

import { fetchConsumerTools } from '../programs/reader-tools.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';

try {
  fetchConsumerTools(cacheFolder(process.env), process.env, (line) => console.error(`netdra: ${line}`));
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
