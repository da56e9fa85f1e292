import { closeSync, constants, mkdirSync, openSync } from 'node:fs';
import { errnoCode } from '../../../lib/errors.ts';
import type { HostFile } from './host-file.ts';

const dirMode = 0o755;
const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;

/** Open directories of the current task. */
let current: HeldDirectories | undefined;

/**
 * Runs a synchronous task. Directories that its file operations open stay open until the task ends. A nested task shares them.
 */
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
 * Directories that stay open, so that several operations on a claim's files open each directory only once. An absent directory
 * is not looked up again: only these operations put files of the claim there, and creating an error takes Node.js longer than
 * the system call. Disposing closes the directories; the object can then be used again.
 */
export class HeldDirectories implements Disposable {
  readonly #open = new Map<string, OpenDirectory>();
  /** Keys of directories that are known not to exist. */
  readonly #absent = new Set<string>();

  /** Returns the directory of a file; `undefined` if it does not exist. */
  find(file: HostFile): OpenDirectory | undefined {
    return this.#walk(file, false);
  }

  /** Returns the directory of a file, and creates it if it does not exist. */
  make(file: HostFile): OpenDirectory {
    return this.#walk(file, true) as OpenDirectory;
  }

  /** Closes a directory and its subdirectories, before it is removed or moved away: its path may be reused. */
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
    // The directory that the operator configured may be a symbolic link; directories below it may not.
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
  /** Whether missing parent directories are created, too. */
  withParents?: boolean;
  /** Whether the directory is known to be absent. */
  isAbsent?: boolean;
}

function keyOf(base: string, parts: readonly string[]): string {
  return [base, ...parts].join('/');
}

/** An open directory. */
export class OpenDirectory implements Disposable {
  readonly #descriptor: number;
  /**
   * Whether this object created the directory: then it contains only subdirectories that were opened and files that were noted.
   */
  readonly isNew: boolean;
  /** Names of files created in the directory, if it is new. */
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

  /** Returns whether the directory may contain a file with this name. */
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

/** Creates a directory. @returns `false` if the directory exists */
function makeDir({ path, withParents: recursive = false }: DirectoryPlace): boolean {
  // A strict umask would make the directory unreadable for the users of containers. A chmod after the creation would be lost if
  // the process ended in between.
  const umask = process.umask(0);
  try {
    const firstCreated = mkdirSync(path, { recursive, mode: dirMode });
    // Only with `recursive` does Node.js report the created directory and accept an existing one.
    return !recursive || firstCreated !== undefined;
  } catch (error) {
    if (errnoCode(error) !== 'EEXIST') throw error;
    return false;
  } finally {
    process.umask(umask);
  }
}
