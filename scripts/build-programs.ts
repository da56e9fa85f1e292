/**
 * Builds `netdra-metadata`, the tool for containers: `node scripts/build-programs.ts [OUT]`, default
 * `dist/programs`. Prints the path of the program. Called by `npm run build:programs`.
 */
import { statSync } from 'node:fs';
import { buildConsumer } from '../programs/build.ts';
import { explain, NetdraError } from '../src/lib/errors.ts';
import { cacheFolder } from './packages/cache-folder.ts';

try {
  const log = (line: string) => console.error(`netdra: ${line}`);
  const path = buildConsumer({
    outDir: process.argv[2] ?? 'dist/programs',
    cacheDir: cacheFolder(process.env),
    log,
  });
  log(`${statSync(path).size} bytes`);
  console.log(path);
} catch (error) {
  if (!(error instanceof NetdraError)) throw error;
  console.error(`netdra: ${explain(error)}`);
  process.exitCode = 1;
}
