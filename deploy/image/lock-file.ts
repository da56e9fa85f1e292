import { readFileSync } from 'node:fs';
import { join } from 'node:path';

interface LockFile {
  packages: Record<string, { version?: string; integrity?: string }>;
}

/**
 * Packages below `node_modules` that differ from the lock file.
 * @param folder with `package-lock.json` and `node_modules`, where npm records the installed packages
 * @returns one text for each
 */
export function findUnlocked(folder: string): string[] {
  const read = (path: string) => JSON.parse(readFileSync(join(folder, path), 'utf8')) as LockFile;
  const locked = read('package-lock.json').packages;
  return Object.entries(read('node_modules/.package-lock.json').packages).flatMap(([path, installed]) => {
    const wanted = locked[path];
    if (wanted === undefined) return [`${path} is not in package-lock.json`];
    if (wanted.integrity === undefined) return [`${path} has no integrity in package-lock.json`];
    if (wanted.version === installed.version && wanted.integrity === installed.integrity) return [];
    return [`${path} is ${installed.version}, not ${wanted.version} as in package-lock.json, or has other content`];
  });
}
