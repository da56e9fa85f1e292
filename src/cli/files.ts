import { constants } from 'node:fs';
import { access, readdir, readFile, realpath } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoCode } from '../lib/errors.ts';

/** Returns a file's text without surrounding white space; `undefined` if the file cannot be read. */
export async function readText(path: string): Promise<string | undefined> {
  return await readFile(path, 'utf8').then(
    (text) => text.trim(),
    () => undefined,
  );
}

/** Returns the names in a directory, sorted; none if the directory cannot be read. */
export async function listNames(path: string): Promise<string[]> {
  return await readdir(path).then(
    (names) => names.sort(),
    () => [],
  );
}

/** Returns the error code if a path cannot be written to (`ENOENT`, `EACCES`, `EROFS`), else `undefined`. Changes nothing. */
export async function writeRefusal(path: string): Promise<string | undefined> {
  try {
    await access(path, constants.R_OK | constants.W_OK);
    return undefined;
  } catch (error) {
    return errnoCode(error) ?? 'unknown';
  }
}

/** Returns the path with symbolic links resolved in the part that exists. */
export async function resolvePath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : `${await resolvePath(parent)}${path.slice(parent === '/' ? 0 : parent.length)}`;
  }
}
