/**
 * Builds the Go programs that are the other side in this suite, before it runs without a network:
 * `node e2e/neighbours/build.ts`.
 */

import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { ensureGoPrograms } from '../go/build.ts';
import { deviceMetadata, kubernetesNext, nriRuntimes } from './programs.ts';

const log = (line: string) => console.error(`netdra: ${line}`);

try {
  for (const module of [...[...nriRuntimes, ...deviceMetadata].map(({ module }) => module), kubernetesNext]) {
    await ensureGoPrograms(cacheFolder(process.env), module, log);
  }
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  log(`the suite of real neighbours cannot run: ${explain(error)}`);
  process.exitCode = 1;
}
