import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { programPath } from '../../deploy/image/layout.ts';
import { makeShippedDriver } from '../../test/bench/shipped-driver.ts';

let built: Promise<string> | undefined;

/**
 * The driver's program as in its image, which starts in a third of the time of the sources. Made once for all tests of
 * this process, in the temporary folder of its node (scripts/in-node.sh).
 * @returns its path
 */
export function builtDriver(): Promise<string> {
  built ??= build();
  return built;
}

async function build(): Promise<string> {
  const outDir = join(mkdtempSync(join(tmpdir(), 'netdra-driver-')), 'image');
  await makeShippedDriver(outDir);
  return join(outDir, programPath);
}
