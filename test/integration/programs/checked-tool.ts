import { buildCheckedConsumer, type CheckedPrograms, programsFolder } from '../../../programs/build.ts';
import { cacheFolder } from '../../../scripts/packages/cache-folder.ts';

/** Long enough for a compiler on a machine with other work. */
export const buildTimeoutMs = 180_000;

/** The programs with sanitizers, built if need be. */
export function checkedTool(): CheckedPrograms {
  return buildCheckedConsumer({ outDir: programsFolder(cacheFolder(process.env), 'checked') });
}
