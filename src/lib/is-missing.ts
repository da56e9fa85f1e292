import { statSync } from 'node:fs';

/**
 * Returns whether nothing exists at a path. Unlike `existsSync`, counts an inaccessible path as present: the error at its use
 * then tells the reason.
 */
export function isMissing(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) === undefined;
  } catch {
    return false;
  }
}
