/** Tells a target its directory; the one who starts the thread removes it, whatever became of the thread. */
export const scratchVariable = 'NETDRA_FUZZ_DIR';

/** A directory for the files of the target that this thread runs. */
export function scratchDir(): string {
  const path = process.env[scratchVariable];
  if (path === undefined) throw new Error(`${scratchVariable} is not set: targets with files run in a fuzzing thread`);
  return path;
}
