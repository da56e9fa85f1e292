import { closeSync, constants, mkdirSync, openSync } from 'node:fs';
import { errnoCode } from '../../../lib/errors.ts';
import type { HostFile } from './host-file.ts';

const dirMode = 0o755;
const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;

/** Directories of the current task. */
let current: HeldDirectories | undefined;

/** Runs a synchronous task: directories that its operations open stay open until it ends. A nested task shares them. */
export function holdDirectories<T>(task: (held: HeldDirectories) => T): T {
  if (current !== undefined) return task(current);
  using held = new HeldDirectories();
  current = held;
  try {
    return task(held);
  } finally {
    current = undefined;
  }
}

/**
 * Directories that stay open between files: several operations on a claim's files open each directory on the way only once.
 * An absent directory is not looked up again, since only these operations put files of the claim there: creating an error
 * takes Node.js longer than the system call. Dispose of it at the end; it is then empty and can be used again.
 */
export class HeldDirectories implements Disposable {
  readonly #open = new Map<string, OpenDirectory>();
  /** Keys of directories that do not exist. */
  readonly #absent = new Set<string>();

  /** Returns the directory of a file; `undefined` if it does not exist. */
  find(file: HostFile): OpenDirectory | undefined {
    return this.#walk(file, false);
  }

  /** Returns the directory of a file, and creates it if it does not exist. */
  make(file: HostFile): OpenDirectory {
    return this.#walk(file, true) as OpenDirectory;
  }

  /** Closes a directory and those in it, before it is removed or moved away: its path may be reused. */
  forget(directory: HostFile): void {
    const path = keyOf(directory.base, directory.parts);
    for (const [key, dir] of this.#open) {
      if (key !== path && !key.startsWith(`${path}/`)) continue;
      dir[Symbol.dispose]();
      this.#open.delete(key);
    }
  }

  [Symbol.dispose]() {
    for (const dir of this.#open.values()) dir[Symbol.dispose]();
    this.#open.clear();
    this.#absent.clear();
  }

  #walk({ base, parts }: HostFile, create: boolean): OpenDirectory | undefined {
    const [first, ...others] = parts.slice(0, -1);
    // The operator's directory may be a symbolic link; directories in it may not.
    let key = keyOf(base, first === undefined ? [] : [first]);
    let dir = this.#hold(key, create, { path: key, flags: first === undefined ? 0 : O_NOFOLLOW, withParents: true });
    for (const name of others) {
      if (dir === undefined) return undefined;
      key = keyOf(key, [name]);
      dir = this.#hold(key, create, { path: dir.at(name), flags: O_NOFOLLOW, isAbsent: dir.isNew });
    }
    return dir;
  }

  #hold(key: string, create: boolean, place: DirectoryPlace): OpenDirectory | undefined {
    const held = this.#open.get(key);
    if (held !== undefined) return held;
    let dir = place.isAbsent || this.#absent.has(key) ? undefined : openIfThere(place);
    if (dir === undefined && create) dir = new OpenDirectory(place.path, place.flags, makeDir(place));
    if (dir === undefined) this.#absent.add(key);
    else {
      this.#open.set(key, dir);
      this.#absent.delete(key);
    }
    return dir;
  }
}

interface DirectoryPlace {
  path: string;
  flags: number;
  /** Whether its parents are created, too. */
  withParents?: boolean;
  /** Whether it is known to be absent. */
  isAbsent?: boolean;
}

function keyOf(base: string, parts: readonly string[]): string {
  return [base, ...parts].join('/');
}

/** An open directory. */
export class OpenDirectory implements Disposable {
  readonly #descriptor: number;
  /** Whether this object created it: then a subdirectory exists only if it was opened, too. */
  readonly isNew: boolean;
  /** Names of files created in it since it was opened. */
  readonly #files = new Set<string>();

  constructor(path: string, flags: number, isNew = false) {
    this.#descriptor = openSync(path, flags | O_RDONLY | O_DIRECTORY);
    this.isNew = isNew;
  }

  at(name: string): string {
    return `/proc/self/fd/${this.#descriptor}/${name}`;
  }

  noteFile(name: string): void {
    if (this.isNew) this.#files.add(name);
  }

  /** Returns whether the directory can contain a file of ours. */
  mayHave(name: string): boolean {
    return !this.isNew || this.#files.has(name);
  }

  [Symbol.dispose]() {
    closeSync(this.#descriptor);
  }
}

function openIfThere({ path, flags }: DirectoryPlace): OpenDirectory | undefined {
  try {
    return new OpenDirectory(path, flags);
  } catch (error) {
    if (errnoCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** @returns `false` if the directory exists */
function makeDir({ path, withParents: recursive = false }: DirectoryPlace): boolean {
  // A strict umask would keep the users of containers out. A chmod afterwards would be lost if the process ended before it.
  const umask = process.umask(0);
  try {
    const firstCreated = mkdirSync(path, { recursive, mode: dirMode });
    // Only with `recursive` does Node.js report what it created, and accept what exists.
    return !recursive || firstCreated !== undefined;
  } catch (error) {
    if (errnoCode(error) !== 'EEXIST') throw error;
    return false;
  } finally {
    process.umask(umask);
  }
}
