import { join } from 'node:path';
import { buildCheckedConsumer, type CheckedPrograms } from '../../../programs/build.ts';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';

/** Long enough for a compiler on a machine with other work. */
export const buildTimeoutMs = 180_000;

/** The programs with sanitizers, built if need be. */
export function checkedTool(): CheckedPrograms {
  return buildCheckedConsumer({ outDir: join(cacheFolder(process.env), 'consumer-check') });
}
