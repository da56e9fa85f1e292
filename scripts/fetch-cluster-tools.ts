/**
 * Fetches the programs in the containers of e2e/cluster and the container engine of e2e/kind, before tests run without a network:
 * `node scripts/fetch-cluster-tools.ts`.
 */
import { fetchEnginePackages } from '../e2e/kind/engine/machine.ts';
import { fetchConsumerPackages } from '../e2e/release/consumer-image.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';

try {
  const log = (line: string) => console.error(`netdra: ${line}`);
  const cacheDir = cacheFolder(process.env);
  fetchConsumerPackages(cacheDir, log);
  fetchEnginePackages(cacheDir, log);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
