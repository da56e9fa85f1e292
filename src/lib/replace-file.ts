import { randomUUID } from 'node:crypto';
import { chmodSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

interface ReplaceOptions {
  /** Whether to wait for the disk. Without it, the file may be incomplete after a power loss. Default true. */
  flush?: boolean;
}

/**
 * Writes a file atomically and durably: a reader, also after a power loss, gets either the whole new file or the old one.
 * @param mode permissions of the file, whatever the umask
 * @throws the error of Node.js; the old file then stays
 */
export function replaceFile(
  path: string,
  content: string | Uint8Array,
  mode: number,
  { flush = true }: ReplaceOptions = {},
): void {
  const temporary = join(dirname(path), `.${basename(path)}.${randomUUID()}.tmp`);
  try {
    writeFileSync(temporary, content, { flag: 'wx', mode, flush });
    chmodSync(temporary, mode);
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw error;
  }
}
