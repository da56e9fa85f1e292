import { randomUUID } from 'node:crypto';
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  lstatSync,
  mkdirSync,
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
import { readdir, rmdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoCode } from '../../../lib/errors.ts';
import { MetadataError } from '../errors.ts';

const fileMode = 0o644;
const dirMode = 0o755;
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR } = constants;

/** Files grow in steps, so that the length of a mounted file seldom changes under a reader. */
const growthStepBytes = 256;

/** No claim has a directory whose name begins like this. */
export const removedPrefix = '.removed-';

/** How often a directory may vanish between its creation and the first file in it. */
const maxCreateAttempts = 5;

/**
 * A file on the host. `base` comes from the operator and may contain links; the directories in `parts` are ours: a link
 * in place of one, or of the file, is refused. All operations are relative to an open directory (`/proc/self/fd/N/name`
 * stands for `openat`), so nobody can put a link there in between.
 *
 * All operations are synchronous: each takes some microseconds in the kernel's cache, and a trip to the thread pool ten
 * times that, with a pod waiting. A simulation can then decide the order of everything else.
 */
export interface HostFile {
  base: string;
  /** Directories, then the file's name: at least the latter. */
  parts: readonly string[];
}

/** What `join` would change: doubled slashes, dots, one at the end. */
const notNormal = /\/\/|\/\.{1,2}(\/|$)|\/$/;

export function hostPath({ base, parts }: HostFile): string {
  // `join` reads its paths letter by letter: 2.7 % of the CPU time of prepare.
  return notNormal.test(base) ? join(base, ...parts) : [base, ...parts].join('/');
}

/**
 * Writes a whole file: temporary file in the same directory, then rename; an empty file is created at once. For files
 * that nobody has mounted yet: a bind mount pins the inode and would keep showing the old content. The temporary name
 * starts with a dot and ends in `.tmp`, which CDI scanners ignore; it is always the same, so that what a killed process
 * left disappears with the next write or removal. No fsync: after a power loss the kubelet prepares the claim again.
 * @param options.mode of the file from the start; default: everybody may read it
 * @throws MetadataError `metadata-io`
 */
export async function createFile(
  file: HostFile,
  text: string,
  { mode = fileMode, held }: { mode?: number; held?: HeldDirectories } = {},
): Promise<void> {
  using own = new HeldDirectories();
  for (let attempt = 1; ; attempt++) {
    try {
      return createOnce((held ?? own).make(file), file, text, mode);
    } catch (cause) {
      if (errnoCode(cause) !== 'ENOENT' || attempt === maxCreateAttempts) throw ioError('write', file, cause);
      // Another claim of the pod may have just removed the directory that they share.
      (held ?? own)[Symbol.dispose]();
    }
  }
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

/** Creates a file; what a killed process left in its place is removed. */
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
    // It was not created, or cannot be removed either: the first error says more.
  }
}

/**
 * Gives a file this content, whether it exists or not. Containers may have it mounted, so an existing file is
 * overwritten by one `pwrite` to the same inode, without truncation: a reader never finds it empty or cut off. Shorter
 * content is padded with blanks, which JSON ignores; for longer content the file is first extended with blanks. An
 * empty text leaves only blanks. A file that has this content already is not touched.
 * @returns whether anything was written
 * @throws MetadataError `metadata-io`
 */
export async function putFile(file: HostFile, text: string, held?: HeldDirectories): Promise<boolean> {
  const found = await overwriteFile(file, text, held);
  if (found === 'absent') await createFile(file, text, held && { held });
  return found !== 'equal';
}

async function overwriteFile(
  file: HostFile,
  text: string,
  held?: HeldDirectories,
): Promise<'absent' | 'equal' | 'overwritten'> {
  return withFile({ file, verb: 'update', flags: O_RDWR, held }, 'absent', (descriptor, size) => {
    const content = Buffer.from(text);
    const present = Buffer.alloc(size);
    readSync(descriptor, present, 0, size, 0);
    if (present.toString().trimEnd() === text.trimEnd()) return 'equal';
    const length = content.length <= size ? size : Math.ceil(content.length / growthStepBytes) * growthStepBytes;
    if (length > size) writeAll(descriptor, Buffer.alloc(length - size, ' '), size);
    writeAll(descriptor, Buffer.concat([content, Buffer.alloc(length - content.length, ' ')]), 0);
    return 'overwritten';
  });
}

/** The file's text, or `undefined` if it does not exist. @throws MetadataError `metadata-io` */
export async function readFileIfThere(file: HostFile, held?: HeldDirectories): Promise<string | undefined> {
  return readFileIfThereSync(file, held);
}

export function readFileIfThereSync(file: HostFile, held?: HeldDirectories): string | undefined {
  const access = { file, verb: 'read', flags: O_RDONLY, held };
  return withFile(access, undefined, (descriptor) => readFileSync(descriptor, 'utf8'));
}

/**
 * A file that others write, and the time of its last change.
 * @returns `undefined` if it does not exist
 * @throws MetadataError `metadata-io`, also if it is longer than `maxBytes`
 */
export function readSmallFile(file: HostFile, maxBytes: number): { text: string; modifiedMs: number } | undefined {
  const access = { file, verb: 'read', flags: O_RDONLY, held: undefined };
  return withFile<{ text: string; modifiedMs: number } | undefined>(access, undefined, (descriptor, size) => {
    if (size > maxBytes) throw new Error(`it has ${size} bytes, at most ${maxBytes} are expected`);
    const bytes = Buffer.alloc(size);
    const length = readSync(descriptor, bytes, 0, size, 0);
    return { text: bytes.toString('utf8', 0, length), modifiedMs: fstatSync(descriptor).mtimeMs };
  });
}

/** Removes a file and its temporary file; neither has to exist. @throws MetadataError `metadata-io` */
export async function removeFile(file: HostFile, held?: HeldDirectories): Promise<void> {
  await inDirectory(file, held, (dir) => {
    for (const name of [temporaryName(nameOf(file)), nameOf(file)]) {
      try {
        if (isThere(dir.at(name))) unlinkSync(dir.at(name));
      } catch (error) {
        if (errnoCode(error) !== 'ENOENT') throw error;
      }
    }
  });
}

/** The name of a file while it is written. The kernel allows 255 bytes. */
export function temporaryName(name: string): string {
  return `.${name.slice(0, 240)}.tmp`;
}

/** Removes a directory and its content; a link in its place is removed itself. @throws MetadataError `metadata-io` */
export async function removeTree(file: HostFile, held?: HeldDirectories): Promise<void> {
  held?.forget(file);
  await inDirectory(file, held, (dir) => rmSync(dir.at(nameOf(file)), { recursive: true, force: true }));
}

/** Runs a task in the background. */
export type Later = (task: () => Promise<void>) => void;

/**
 * Moves a directory away at once and removes its content later, in threads: freeing the inodes takes longer than
 * everything else, on a busy disk some milliseconds. Until then it is next to its old place, under a name that begins
 * with {@link removedPrefix}. What a crash or an error leaves is found by the search for directories without a claim.
 * @throws MetadataError `metadata-io`
 */
export async function takeTreeAway(file: HostFile, later: Later, held?: HeldDirectories): Promise<void> {
  const removed: HostFile = { ...file, parts: [...file.parts.slice(0, -1), `${removedPrefix}${randomUUID()}`] };
  held?.forget(file);
  await inDirectory(file, held, (dir) => {
    renameSync(dir.at(nameOf(file)), dir.at(nameOf(removed)));
    later(async () => {
      using own = new HeldDirectories();
      const path = own.find(removed)?.at(nameOf(removed));
      if (path === undefined) return;
      await removeDirectory(path).catch((error: unknown) => {
        // The sweep for directories without a claim may remove it at the same time.
        if (errnoCode(error) !== 'ENOENT') throw error;
      });
    });
  });
}

/**
 * Removes a directory with its content. `rm` of Node.js needs twice as many calls, each of them a trip to a thread: it stats
 * each entry, and first tries to remove directories that are not empty.
 */
async function removeDirectory(path: string): Promise<void> {
  const entries = await readdir(path, { withFileTypes: true });
  for (const entry of entries) {
    const inside = `${path}/${entry.name}`;
    await (entry.isDirectory() ? removeDirectory(inside) : unlink(inside));
  }
  await rmdir(path);
}

/** Removes a directory if it is empty. @throws MetadataError `metadata-io` */
export async function removeEmptyDir(file: HostFile, held?: HeldDirectories): Promise<void> {
  held?.forget(file);
  await inDirectory(file, held, (dir) => {
    try {
      rmdirSync(dir.at(nameOf(file)));
    } catch (error) {
      if (errnoCode(error) !== 'ENOTEMPTY') throw error;
    }
  });
}

/** The entries of a directory given by the operator; none if it does not exist. @throws MetadataError `metadata-io` */
export async function listDir(path: string): Promise<string[]> {
  try {
    return readdirSync(path);
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return [];
    throw ioError('list', { base: path, parts: ['.'] }, cause);
  }
}

/**
 * Names of the directories in a directory, without links; none if it does not exist.
 * @throws MetadataError `metadata-io`
 */
export async function listSubdirectories(directory: HostFile): Promise<string[]> {
  try {
    const entries = readdirSync(hostPath(directory), { withFileTypes: true });
    return entries.flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return [];
    throw ioError('list', directory, cause);
  }
}

async function inDirectory(
  file: HostFile,
  held: HeldDirectories | undefined,
  task: (dir: OpenDirectory) => void,
): Promise<void> {
  using own = new HeldDirectories();
  try {
    const dir = (held ?? own).find(file);
    if (dir !== undefined) task(dir);
  } catch (cause) {
    if (errnoCode(cause) !== 'ENOENT') throw ioError('remove', file, cause);
  }
}

interface FileAccess {
  file: HostFile;
  /** The operation, for messages. */
  verb: string;
  flags: number;
  held: HeldDirectories | undefined;
}

function withFile<T>(
  { file, verb, flags, held }: FileAccess,
  absent: T,
  task: (descriptor: number, size: number) => T,
): T {
  using own = new HeldDirectories();
  try {
    const dir = (held ?? own).find(file);
    if (dir === undefined || !dir.mayHave(nameOf(file))) return absent;
    // Non-blocking: it may be a pipe.
    const descriptor = openSync(dir.at(nameOf(file)), flags | O_NOFOLLOW | O_NONBLOCK);
    try {
      const stat = fstatSync(descriptor);
      if (!stat.isFile()) throw new Error('it is not a regular file');
      return task(descriptor, stat.size);
    } finally {
      closeSync(descriptor);
    }
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return absent;
    throw ioError(verb, file, cause);
  }
}

/**
 * For files that usually do not exist: an error of Node.js takes longer than the check. Files that usually exist are
 * opened without it. A link counts as existing.
 */
function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}

function writeAll(descriptor: number, content: Buffer, position: number): void {
  // The kernel writes a regular file's buffer whole; a short write means a full disk, and the next one says so.
  for (let done = 0; done < content.length; ) {
    done += writeSync(descriptor, content, done, content.length - done, position + done);
  }
}

/**
 * Directories that stay open from one file to the next: several operations on a claim's files open each directory on
 * the way only once. An absent directory is not looked up again, since only these operations put files of the claim there:
 * creating an error takes Node.js longer than the call. Dispose of it at the end; it starts empty afterwards, and can be
 * used again.
 */
export class HeldDirectories implements Disposable {
  readonly #open = new Map<string, OpenDirectory>();
  /** Keys of directories that do not exist. */
  readonly #absent = new Set<string>();

  /** The directory of a file; `undefined` if it does not exist. */
  find(file: HostFile): OpenDirectory | undefined {
    return this.#walk(file, false);
  }

  /** The directory of a file; it is created if it does not exist. */
  make(file: HostFile): OpenDirectory {
    return this.#walk(file, true) as OpenDirectory;
  }

  /** Closes a directory and those in it, before it is removed or moved away: its path may be used again. */
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
    // The operator's directory may be a link; those in it may not.
    let key = keyOf(base, first === undefined ? [] : [first]);
    const flags = first === undefined ? 0 : O_NOFOLLOW;
    let dir =
      this.#open.get(key) ??
      this.#hold(key, () => openDirectory(key, flags, create ? 'with parents' : 'never'), create);
    for (const name of others) {
      if (dir === undefined) return undefined;
      const parent: OpenDirectory = dir;
      key = keyOf(key, [name]);
      dir = this.#open.get(key) ?? this.#hold(key, (isAbsent) => openInside(parent, name, create, isAbsent), create);
    }
    return dir;
  }

  #hold(
    key: string,
    open: (isAbsent: boolean) => OpenDirectory | undefined,
    create: boolean,
  ): OpenDirectory | undefined {
    const isAbsent = this.#absent.has(key);
    if (isAbsent && !create) return undefined;
    const dir = open(isAbsent);
    if (dir === undefined) this.#absent.add(key);
    else {
      this.#open.set(key, dir);
      this.#absent.delete(key);
    }
    return dir;
  }
}

function keyOf(base: string, parts: readonly string[]): string {
  return [base, ...parts].join('/');
}

/** A directory, held open. */
class OpenDirectory implements Disposable {
  readonly #descriptor: number;
  /** Whether it was created to be opened: then a directory in it exists only if it was opened, too. */
  readonly isNew: boolean;
  /** Names of the files that were created in it since. */
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

  /** Whether a file of ours can be in it. */
  mayHave(name: string): boolean {
    return !this.isNew || this.#files.has(name);
  }

  [Symbol.dispose]() {
    closeSync(this.#descriptor);
  }
}

/** @returns `undefined` if it does not exist and is not to be created */
function openInside(
  parent: OpenDirectory,
  name: string,
  create: boolean,
  isAbsent: boolean,
): OpenDirectory | undefined {
  const path = parent.at(name);
  if (!parent.isNew && !isAbsent) return openDirectory(path, O_NOFOLLOW, create ? 'itself' : 'never');
  return create ? createDirectory(path, O_NOFOLLOW, false) : undefined;
}

/** @returns `undefined` if it does not exist and is not to be created */
function openDirectory(
  path: string,
  flags: number,
  create: 'never' | 'itself' | 'with parents',
): OpenDirectory | undefined {
  try {
    return new OpenDirectory(path, flags);
  } catch (error) {
    if (errnoCode(error) !== 'ENOENT') throw error;
    return create === 'never' ? undefined : createDirectory(path, flags, create === 'with parents');
  }
}

function createDirectory(path: string, flags: number, withParents: boolean): OpenDirectory {
  const isNew = makeDir(path, withParents);
  return new OpenDirectory(path, flags, isNew);
}

/** @returns `false` if it exists already */
function makeDir(path: string, recursive: boolean): boolean {
  try {
    const firstCreated = mkdirSync(path, { recursive, mode: dirMode });
    // Only with `recursive` does Node.js say what it has created, and accept what exists.
    return !recursive || firstCreated !== undefined;
  } catch (error) {
    if (errnoCode(error) !== 'EEXIST') throw error;
    return false;
  }
}

function nameOf({ parts }: HostFile): string {
  return parts.at(-1) as string;
}

const hints: Record<string, string> = {
  ENOSPC: 'free space on that file system',
  EROFS: 'the file system is read-only: check the mounts of the driver',
  EACCES: 'the driver needs write access to that directory',
  EIO: 'the disk or its file system fails: see the log of the kernel',
};

function ioError(verb: string, file: HostFile, cause: unknown): MetadataError {
  const path = hostPath(file);
  const link = firstLink(file);
  const hint = link === undefined ? hintFor(cause) : `${link} is a symbolic link, remove it`;
  return new MetadataError('metadata-io', `cannot ${verb} ${path}`, {
    ...{ cause, path, hint, retriable: true },
  });
}

function hintFor(cause: unknown): string {
  return hints[errnoCode(cause) ?? ''] ?? 'check that path and its file system: the driver tries again';
}

/** The first link in place of one of our directories, or of the file: the kernel's error text does not name it. */
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
