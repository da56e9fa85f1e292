/**
 * Fetches pnpm and actionlint, for the tests of the npm package and of the workflows, before they run without a network:
 * `node scripts/fetch-project-tools.ts`.
 */
import { ensureGoPrograms } from '../e2e/go/build.ts';
import { fetchPnpm } from '../e2e/release/pnpm.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';

try {
  const cacheDir = cacheFolder(process.env);
  await ensureGoPrograms(cacheDir, 'actionlint', (line) => console.error(`netdra: ${line}`));
  fetchPnpm(cacheDir);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
