/** Variable with the folder for the files of targets; the process that sets it removes the folder. */
export const scratchVariable = 'NETDRA_FUZZ_DIR';

/** A folder for the files of a target. */
export function scratchDir(): string {
  const path = process.env[scratchVariable];
  if (path === undefined) throw new Error(`${scratchVariable} is not set`);
  return path;
}
