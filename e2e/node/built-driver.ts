import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeImageFiles } from '../../deploy/image/image-files.ts';
import { architectures, programPath } from '../../deploy/image/layout.ts';
import { locateGate } from './tools.ts';

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
  const architecture = process.arch === architectures.arm64 ? 'arm64' : 'amd64';
  await makeImageFiles({ outDir, architecture, gateProgram: locateGate() });
  return join(outDir, programPath);
}
