/**
 * Builds `netdra-metadata`, the tool for containers: `node scripts/build-consumer.ts [OUT]`, default
 * `dist/consumer`. Prints the path of the program. Called by `npm run build:consumer`.
 */
import { statSync } from 'node:fs';
import { buildConsumer } from '../consumer/build.ts';
import { cacheFolder } from '../e2e/node/tools.ts';
import { explain, NetdraError } from '../src/errors.ts';

try {
  const log = (line: string) => console.error(`netdra: ${line}`);
  const path = buildConsumer({
    outDir: process.argv[2] ?? 'dist/consumer',
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
