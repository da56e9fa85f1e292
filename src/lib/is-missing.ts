import { statSync } from 'node:fs';

/** Whether there is nothing at a path. Unlike with `existsSync`, what may not be looked at is not missing: using it says why. */
export function isMissing(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    return false;
  }
}
