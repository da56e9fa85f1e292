import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs';
import { join } from 'node:path';
import { errnoCode, NetdraError } from '../../src/lib/errors.ts';

/** A folder that is built once from its inputs and only read afterwards. */
export interface CacheEntry {
  /** Lower-case letters; other folders of this name are removed once no checkout has used them for {@link keptDays}. */
  name: string;
  /** Everything that determines the content, as JSON. */
  inputs: unknown;
  /** Fills the empty folder. */
  build: (dir: string) => void;
}

/** Checkouts of different versions share the cache, so a folder is kept while one of them may still need it. */
export const keptDays = 30;

/** The entry's folder, whether or not it exists. */
export function cacheEntryFolder(cacheDir: string, { name, inputs }: CacheEntry): string {
  const key = createHash('sha256').update(JSON.stringify(inputs)).digest('hex').slice(0, 12);
  return join(cacheDir, `${name}-${key}`);
}

/**
 * Ensures that the entries exist and prevents their removal until the lock is disposed. Several machines share them;
 * a process that has to build waits until the others have ended, and removes versions that have not been used lately.
 * @returns the folders, and the lock that keeps them
 */
export function takeCacheEntries(cacheDir: string, entries: CacheEntry[]): { folders: string[]; lock: CacheLock } {
  mkdirSync(cacheDir, { recursive: true });
  const lock = new CacheLock(join(cacheDir, 'lock'));
  try {
    const folders = entries.map((entry) => cacheEntryFolder(cacheDir, entry));
    lock.take('shared');
    if (!folders.every(existsSync)) {
      lock.take('exclusive');
      for (const entry of entries) buildCacheEntry(cacheDir, entry);
      lock.take('shared');
    }
    for (const folder of folders) markUsed(folder);
    return { folders, lock };
  } catch (error) {
    lock[Symbol.dispose]();
    throw error;
  }
}

/** Removes the entries, once no process uses any, so that they are built of newer inputs that no key has, such as packages. */
export function removeCacheEntries(cacheDir: string, entries: CacheEntry[]): void {
  mkdirSync(cacheDir, { recursive: true });
  using lock = new CacheLock(join(cacheDir, 'lock'));
  lock.take('exclusive');
  for (const entry of entries) rmSync(cacheEntryFolder(cacheDir, entry), { recursive: true, force: true });
}

/** Builds in a temporary folder and renames it: an existing folder is complete. */
function buildCacheEntry(cacheDir: string, entry: CacheEntry): void {
  const folder = cacheEntryFolder(cacheDir, entry);
  if (existsSync(folder)) return;
  const others = readdirSync(cacheDir).filter((name) => name.startsWith(`${entry.name}-`));
  const partial = mkdtempSync(join(cacheDir, `${entry.name}-partial-`));
  try {
    entry.build(partial);
    renameSync(partial, folder);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  for (const name of others) {
    // The lock is exclusive: an unfinished folder is of a killed build.
    const isUnfinished = name.startsWith(`${entry.name}-partial-`);
    const path = join(cacheDir, name);
    if (isUnfinished || isUnused(path)) rmSync(path, { recursive: true, force: true });
  }
}

/** Renames a complete folder. Another run may have made the same meanwhile: its folder is then kept, and this one removed. */
export function moveIntoPlace(complete: string, target: string): void {
  try {
    renameSync(complete, target);
  } catch (error) {
    if (!['ENOTEMPTY', 'EEXIST'].includes(errnoCode(error) ?? '')) throw error;
    rmSync(complete, { recursive: true });
  }
}

/** Records in the folder's modification time that it is in use. */
export function markUsed(folder: string): void {
  const now = new Date();
  utimesSync(folder, now, now);
}

/** Whether no run has called {@link markUsed} for {@link keptDays}. */
export function isUnused(folder: string): boolean {
  return Date.now() - statSync(folder).mtimeMs > keptDays * 86_400_000;
}

/** A lock between processes. The kernel releases it when its holder ends, in whatever way. */
export class CacheLock implements Disposable {
  readonly #path: string;
  #fd: number | undefined;

  constructor(path: string) {
    this.#path = path;
    this.#fd = openSync(path, 'a');
  }

  /** Acquires the lock, or converts a held one to the other kind; other processes can get it in between. */
  take(kind: 'shared' | 'exclusive'): void {
    if (this.#fd === undefined) throw new NetdraError('lock-disposed', `the lock ${this.#path} was given back`);
    // The lock belongs to the open file, which flock shares with us.
    const { status, error } = spawnSync('flock', [`--${kind}`, '3'], {
      stdio: ['ignore', 'ignore', 'inherit', this.#fd],
    });
    if (status === 0) return;
    throw new NetdraError('lock-failed', `cannot lock ${this.#path}`, {
      cause: error,
      path: this.#path,
      hint: 'flock of util-linux is needed',
    });
  }

  [Symbol.dispose](): void {
    if (this.#fd !== undefined) closeSync(this.#fd);
    this.#fd = undefined;
  }
}
