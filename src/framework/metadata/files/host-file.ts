import { randomUUID } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { errnoCode, fileHint } from '../../../lib/errors.ts';
import { MetadataError } from '../errors.ts';
import { type HeldDirectories, holdDirectories, type OpenDirectory } from './held-directories.ts';

const fileMode = 0o644;
const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** Prefix of removed directories; no claim's directory begins with it. */
export const removedPrefix = '.removed-';

/** Limit for attempts if a directory vanishes between its creation and the first file in it. */
const maxCreateAttempts = 5;

/**
 * A file on the host. `base` is configured by the operator and may contain symbolic links. The directories in `parts` are the
 * driver's: a link in place of one of them, or of the file, is refused. All operations are relative to an open directory
 * (`/proc/self/fd/N/name` stands for `openat`), so that no link can be inserted in between.
 *
 * All operations are synchronous: each takes some microseconds in the kernel's cache, ten times less than a trip to the thread
 * pool, while a pod waits. A simulation can then decide the order of all other steps. All operations throw MetadataError
 * `metadata-io`.
 */
export interface HostFile {
  base: string;
  /** Names of the directories, then of the file; at least one name. */
  parts: readonly string[];
}

/** Matches paths that `join` would change: with doubled slashes, `.` or `..` as a component, or a slash at the end. */
const notNormal = /\/\/|\/\.{1,2}(\/|$)|\/$/;

export function hostPath({ base, parts }: HostFile): string {
  // `join` reads its paths letter by letter, which takes 2.7 % of the CPU time of prepare.
  return notNormal.test(base) ? join(base, ...parts) : [base, ...parts].join('/');
}

/**
 * Writes a whole file: first a temporary file in the same directory, then a rename; an empty file is created at once. Use it
 * for files that no container has mounted yet: a bind mount pins the inode and would keep showing the old content. The
 * temporary name starts with a dot and ends in `.tmp`, which CDI scanners ignore. It is always the same, so that the next write
 * or removal cleans up after a killed process. There is no fsync: after a power loss the kubelet prepares the claim again.
 * @param options.mode mode of the file from the start; default: readable by everybody
 */
export function createFile(file: HostFile, text: string, { mode = fileMode }: { mode?: number } = {}): void {
  holdDirectories((held) => {
    for (let attempt = 1; ; attempt++) {
      try {
        return createOnce(held.make(file), file, text, mode);
      } catch (cause) {
        if (errnoCode(cause) !== 'ENOENT' || attempt === maxCreateAttempts) throw ioError('write', file, cause);
        // Another instance may have just removed the directory with its last file.
        held[Symbol.dispose]();
      }
    }
  });
}

function createOnce(dir: OpenDirectory, file: HostFile, text: string, mode: number): void {
  const path = dir.at(nameOf(file));
  // An empty file is complete as soon as it exists.
  const written = text === '' ? path : dir.at(temporaryName(nameOf(file)));
  try {
    const descriptor = openNew(written);
    try {
      if (text !== '') writeFileSync(descriptor, text);
      fchmodSync(descriptor, mode);
    } finally {
      closeSync(descriptor);
    }
    if (written !== path) renameSync(written, path);
    dir.noteFile(nameOf(file));
  } catch (error) {
    removeIfThere(written);
    throw error;
  }
}

/** Creates a file. First removes a file that a killed process has left at its path. */
function openNew(path: string): number {
  try {
    return openSync(path, 'wx', fileMode);
  } catch (error) {
    if (errnoCode(error) !== 'EEXIST') throw error;
    rmSync(path);
    return openSync(path, 'wx', fileMode);
  }
}

function removeIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // The file was not created, or cannot be removed either: the first error says more.
  }
}

/** Returns the file's text, or `undefined` if it does not exist. */
export function readFileIfThere(file: HostFile): string | undefined {
  return withFile(file, 'read', O_RDONLY, (descriptor) => readFileSync(descriptor, 'utf8'));
}

/** Returns whether a file has this text. Cheap if the file does not exist. */
export function hasText(file: HostFile, text: string): boolean {
  const read = (descriptor: number) => readFileSync(descriptor, 'utf8');
  return withFile(file, 'read', O_RDONLY, read, { isRare: true }) === text;
}

/**
 * Reads a file that others write, and the time of its last change; `undefined` if it does not exist.
 * @throws MetadataError `metadata-io`, also if the file is longer than `maxBytes`
 */
export function readSmallFile(file: HostFile, maxBytes: number): { text: string; modifiedMs: number } | undefined {
  return withFile(file, 'read', O_RDONLY, (descriptor, size) => {
    if (size > maxBytes) throw new Error(`it has ${size} bytes, at most ${maxBytes} are expected`);
    const bytes = Buffer.alloc(size);
    const length = readSync(descriptor, bytes, 0, size, 0);
    return { text: bytes.toString('utf8', 0, length), modifiedMs: fstatSync(descriptor).mtimeMs };
  });
}

/** Removes a file and its temporary file; missing files are no error. */
export function removeFile(file: HostFile): void {
  inDirectory(file, (dir) => {
    for (const name of [temporaryName(nameOf(file)), nameOf(file)]) {
      try {
        if (isThere(dir.at(name))) unlinkSync(dir.at(name));
      } catch (error) {
        if (errnoCode(error) !== 'ENOENT') throw error;
      }
    }
  });
}

/** Renames a file within its directory, replacing a file with that name; a missing file is no error. */
export function renameFile(file: HostFile, name: string): void {
  try {
    holdDirectories((held) => {
      const dir = held.find(file);
      if (dir === undefined || !isThere(dir.at(nameOf(file)))) return;
      renameSync(dir.at(nameOf(file)), dir.at(name));
      dir.noteFile(name);
    });
  } catch (cause) {
    throw ioError('rename', file, cause);
  }
}

/** Returns the temporary name of a file, at most 255 bytes, which is the kernel's limit. */
export function temporaryName(name: string): string {
  return `.${name.slice(0, 240)}.tmp`;
}

/** Creates a directory and its parents, unless they exist. */
export function makeDirectory(directory: HostFile): void {
  try {
    holdDirectories((held) => held.make({ ...directory, parts: [...directory.parts, ''] }));
  } catch (cause) {
    throw ioError('make', directory, cause);
  }
}

/** Removes a directory and its content. Removes a link in its place, not the link's target. */
export function removeTree(file: HostFile): void {
  inDirectory(file, (dir, held) => {
    held.forget(file);
    rmSync(dir.at(nameOf(file)), { recursive: true, force: true });
  });
}

/** Schedules a task for later. */
export type Later = (task: () => void) => void;

/**
 * Moves a directory away at once and schedules its removal: freeing the inodes takes longer than the rest of the work. Until
 * then the directory has a name that begins with {@link removedPrefix}, beside its old place. If a crash or an error prevents
 * the removal, the search for directories without a claim finds it.
 */
export function takeTreeAway(file: HostFile, later: Later): void {
  const removed: HostFile = { ...file, parts: [...file.parts.slice(0, -1), `${removedPrefix}${randomUUID()}`] };
  inDirectory(file, (dir, held) => {
    held.forget(file);
    renameSync(dir.at(nameOf(file)), dir.at(nameOf(removed)));
    later(() => removeTree(removed));
  });
}

/** Removes a directory if it is empty. */
export function removeEmptyDir(file: HostFile): void {
  inDirectory(file, (dir, held) => {
    held.forget(file);
    try {
      rmdirSync(dir.at(nameOf(file)));
    } catch (error) {
      if (errnoCode(error) !== 'ENOTEMPTY') throw error;
    }
  });
}

/** Returns the entries of a directory that the operator configured; none if it does not exist. */
export function listDir(path: string): string[] {
  try {
    return readdirSync(path);
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return [];
    throw ioError('list', { base: path, parts: ['.'] }, cause);
  }
}

/** Returns the names of the subdirectories of a directory, without links; none if it does not exist. */
export function listSubdirectories(directory: HostFile): string[] {
  try {
    const entries = readdirSync(hostPath(directory), { withFileTypes: true });
    return entries.flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return [];
    throw ioError('list', directory, cause);
  }
}

function inDirectory(file: HostFile, task: (dir: OpenDirectory, held: HeldDirectories) => void): void {
  try {
    holdDirectories((held) => {
      const dir = held.find(file);
      if (dir !== undefined) task(dir, held);
    });
  } catch (cause) {
    if (errnoCode(cause) !== 'ENOENT') throw ioError('remove', file, cause);
  }
}

/**
 * Opens a file for an operation.
 * @param verb the operation, for messages
 * @param options.isRare whether the file usually does not exist
 * @returns `undefined` if the file does not exist
 */
export function withFile<T>(
  file: HostFile,
  verb: string,
  flags: number,
  task: (descriptor: number, size: number) => T,
  { isRare = false }: { isRare?: boolean } = {},
) {
  try {
    return holdDirectories((held) => {
      const dir = held.find(file);
      if (dir === undefined || !dir.mayHave(nameOf(file))) return undefined;
      if (isRare && !isThere(dir.at(nameOf(file)))) return undefined;
      // Non-blocking, since the file may be a pipe.
      const descriptor = openSync(dir.at(nameOf(file)), flags | O_NOFOLLOW | O_NONBLOCK);
      try {
        const stat = fstatSync(descriptor);
        if (!stat.isFile()) throw new Error('it is not a regular file');
        return task(descriptor, stat.size);
      } finally {
        closeSync(descriptor);
      }
    });
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return undefined;
    throw ioError(verb, file, cause);
  }
}

/**
 * Returns whether a file exists; a link counts as existing. Used only for files that usually do not exist: an error of Node.js
 * takes longer than this check.
 */
function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

export function writeAll(descriptor: number, content: Buffer, position: number): void {
  // The kernel writes a buffer to a regular file as a whole. A short write means that the disk is full, which the next write
  // reports.
  for (let done = 0; done < content.length; ) {
    done += writeSync(descriptor, content, done, content.length - done, position + done);
  }
}

export function nameOf({ parts }: HostFile): string {
  return parts.at(-1) as string;
}

function ioError(verb: string, file: HostFile, cause: unknown): MetadataError {
  const path = hostPath(file);
  const link = firstLink(file);
  const hint = link === undefined ? fileHint(cause) : `${link} is a symbolic link: remove it`;
  return new MetadataError('metadata-io', `cannot ${verb} ${path}`, { cause, path, hint, retriable: true });
}

/**
 * Returns the first link in place of one of the driver's directories, or of the file: the kernel's error text does not name it.
 */
function firstLink({ base, parts }: HostFile): string | undefined {
  for (let count = 1; count <= parts.length; count++) {
    const path = join(base, ...parts.slice(0, count));
    try {
      if (lstatSync(path).isSymbolicLink()) return path;
    } catch {
      return undefined;
    }
  }
  return undefined;
}
