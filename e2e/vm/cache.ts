import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { NetdraError } from '../../src/errors.ts';

/** A folder that is made once from its inputs and then only read. */
export interface CacheEntry {
  /** Lower-case letters; one folder of each name is kept. */
  name: string;
  /** All that the content depends on, as JSON. */
  inputs: unknown;
  /** Fills the empty folder. */
  build: (dir: string) => void;
}

/** The entry's folder, whether or not it is there. */
export function cacheEntryFolder(cacheDir: string, { name, inputs }: CacheEntry): string {
  const key = createHash('sha256').update(JSON.stringify(inputs)).digest('hex').slice(0, 12);
  return join(cacheDir, `${name}-${key}`);
}

/**
 * Makes sure of the entries and keeps them from being removed until the lock is disposed. Several machines share what is
 * there; whoever has to build waits until the others ended, and removes what the same entries were before.
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
    return { folders, lock };
  } catch (error) {
    lock[Symbol.dispose]();
    throw error;
  }
}

/** Builds beside the final place and renames: a folder that is there is complete. */
function buildCacheEntry(cacheDir: string, entry: CacheEntry): void {
  const folder = cacheEntryFolder(cacheDir, entry);
  if (existsSync(folder)) return;
  // Other versions of the entry, and what a build that was killed left behind.
  const stale = readdirSync(cacheDir).filter((name) => name.startsWith(`${entry.name}-`));
  const partial = mkdtempSync(join(cacheDir, `${entry.name}-partial-`));
  try {
    entry.build(partial);
    renameSync(partial, folder);
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  for (const name of stale) rmSync(join(cacheDir, name), { recursive: true, force: true });
}

/** A lock between processes. The kernel gives it back when its holder ends, however that happens. */
export class CacheLock implements Disposable {
  readonly #path: string;
  #fd: number | undefined;

  constructor(path: string) {
    this.#path = path;
    this.#fd = openSync(path, 'a');
  }

  /** Waits for it, or turns the one that is held into the other kind; others can come in between. */
  take(kind: 'shared' | 'exclusive'): void {
    if (this.#fd === undefined) throw new NetdraError('lock-disposed', `the lock ${this.#path} was given back`);
    // The lock belongs to the open file, which the program shares with us.
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
