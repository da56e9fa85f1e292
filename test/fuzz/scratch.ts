/** Variable with the folder for the files of targets; the process that sets it removes the folder. */
export const scratchVariable = 'NETDRA_FUZZ_DIR';

/** A folder for the files of a target. */
export function scratchDir(): string {
  const path = process.env[scratchVariable];
  if (path === undefined) throw new Error(`${scratchVariable} is not set`);
  return path;
}

/** Environment variable that is set where other programs use the processors, too: limits of time are wide then. */
export const busyVariable = 'NETDRA_FUZZ_BUSY';
