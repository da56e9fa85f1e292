import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
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
import { lstat, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoCode } from '../errors.ts';
import { MetadataError } from './errors.ts';

const fileMode = 0o644;
const dirMode = 0o755;
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR } = constants;

/** Files that grow do so in steps, so that the length of a mounted file seldom changes under a reader. */
const growthStepBytes = 256;

/** How often a directory may vanish between its making and the first file in it. */
const maxCreateAttempts = 5;

/**
 * A file on the host. `base` is as the operator gave it and may contain links; the directories in `parts` are ours: a
 * link in the place of one, or of the file, is refused. What is done with the file is done relative to an open directory
 * (`/proc/self/fd/N/name` stands for `openat`), so nobody can put a link there in between.
 *
 * What touches one small file is done synchronously: each step takes some microseconds in the kernel's cache, and a trip to
 * the thread pool ten times that, with a pod waiting.
 */
export interface HostFile {
  base: string;
  /** Directories and the file's name: at least the latter. */
  parts: readonly string[];
}

export function hostPath(file: HostFile): string {
  return join(file.base, ...file.parts);
}

/**
 * Puts a whole file into place: temporary file in the same directory, then rename. For files that nobody has mounted
 * yet: a bind mount pins the inode and would go on showing the old content. The temporary name starts with a dot and
 * ends in `.tmp`, which CDI scanners pass over; it is always the same, so that what a killed process left goes with the
 * next write or the removal. No fsync: after a power loss the kubelet prepares the claim again.
 * @param mode that it has from the start; default: everybody may read it
 * @throws MetadataError `metadata-io`
 */
export async function createFile(file: HostFile, text: string, mode: number = fileMode): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return createOnce(file, text, mode);
    } catch (cause) {
      // Another claim of the pod may just have removed the directory that they share.
      if (errnoCode(cause) !== 'ENOENT' || attempt === maxCreateAttempts) throw await ioError('write', file, cause);
    }
  }
}

function createOnce(file: HostFile, text: string, mode: number): void {
  using dir = Directory.open(file, { create: true });
  const temporary = dir.at(temporaryName(nameOf(file)));
  try {
    const descriptor = openNew(temporary);
    try {
      writeFileSync(descriptor, text);
      fchmodSync(descriptor, mode);
    } finally {
      closeSync(descriptor);
    }
    renameSync(temporary, dir.at(nameOf(file)));
  } catch (error) {
    removeIfThere(temporary);
    throw error;
  }
}

/** A file that was not there; what a killed process has left in its place goes. */
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
    // It was not made, or cannot be removed either: what was thrown before says more.
  }
}

/**
 * Makes a file say something, whether it is there or not. Containers may have it mounted, so what is there is replaced by
 * one `pwrite` over the same inode, without truncation: a reader never finds it empty or cut off. Shorter content is
 * padded with blanks, which JSON ignores; before longer content the file is first lengthened with blanks. A file that
 * says it already is not touched.
 * @throws MetadataError `metadata-io`
 */
export async function putFile(file: HostFile, text: string): Promise<void> {
  if (!(await overwriteFile(file, text))) await createFile(file, text);
}

async function overwriteFile(file: HostFile, text: string): Promise<boolean> {
  return await withFile(file, 'update', O_RDWR, false, (descriptor, size) => {
    const content = Buffer.from(text);
    const present = Buffer.alloc(size);
    readSync(descriptor, present, 0, size, 0);
    if (present.toString().trimEnd() === text.trimEnd()) return true;
    const length = content.length <= size ? size : Math.ceil(content.length / growthStepBytes) * growthStepBytes;
    if (length > size) writeAll(descriptor, Buffer.alloc(length - size, ' '), size);
    writeAll(descriptor, Buffer.concat([content, Buffer.alloc(length - content.length, ' ')]), 0);
    return true;
  });
}

/** The file's text, or `undefined` if it does not exist. @throws MetadataError `metadata-io` */
export async function readFileIfThere(file: HostFile): Promise<string | undefined> {
  return await withFile(file, 'read', O_RDONLY, undefined, (descriptor) => readFileSync(descriptor, 'utf8'));
}

/** Removes a file and what a killed process left of writing it; neither need be there. @throws MetadataError `metadata-io` */
export async function removeFile(file: HostFile): Promise<void> {
  await inDirectory(file, (dir) => {
    for (const name of [temporaryName(nameOf(file)), nameOf(file)]) {
      try {
        unlinkSync(dir.at(name));
      } catch (error) {
        if (errnoCode(error) !== 'ENOENT') throw error;
      }
    }
  });
}

/** What a file is called while it is written. The kernel has room for 255 bytes. */
export function temporaryName(name: string): string {
  return `.${name.slice(0, 240)}.tmp`;
}

/** Removes a directory with all that is in it; a link in its place is removed itself. @throws MetadataError `metadata-io` */
export async function removeTree(file: HostFile): Promise<void> {
  await inDirectory(file, (dir) => rm(dir.at(nameOf(file)), { recursive: true, force: true }));
}

/** Removes a directory if nothing is in it. @throws MetadataError `metadata-io` */
export async function removeEmptyDir(file: HostFile): Promise<void> {
  await inDirectory(file, (dir) => {
    try {
      rmdirSync(dir.at(nameOf(file)));
    } catch (error) {
      if (errnoCode(error) !== 'ENOTEMPTY') throw error;
    }
  });
}

/** What is in a directory that the operator gave us; nothing if it is not there. @throws MetadataError `metadata-io` */
export async function listDir(path: string): Promise<string[]> {
  try {
    return readdirSync(path);
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return [];
    throw await ioError('list', { base: path, parts: ['.'] }, cause);
  }
}

async function inDirectory(file: HostFile, task: (dir: Directory) => void | Promise<void>): Promise<void> {
  try {
    using dir = Directory.open(file);
    await task(dir);
  } catch (cause) {
    if (errnoCode(cause) !== 'ENOENT') throw await ioError('remove', file, cause);
  }
}

async function withFile<T>(
  file: HostFile,
  verb: string,
  flags: number,
  absent: T,
  task: (descriptor: number, size: number) => T,
): Promise<T> {
  try {
    using dir = Directory.open(file);
    // Without blocking: what lies there may be a pipe.
    const descriptor = openSync(dir.at(nameOf(file)), flags | O_NOFOLLOW | O_NONBLOCK);
    try {
      const stat = fstatSync(descriptor);
      if (!stat.isFile()) throw new Error('it is no regular file');
      return task(descriptor, stat.size);
    } finally {
      closeSync(descriptor);
    }
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return absent;
    throw await ioError(verb, file, cause);
  }
}

function writeAll(descriptor: number, content: Buffer, position: number): void {
  // The kernel takes a regular file's buffer whole; a short write means a full disk, and the next one says so.
  for (let done = 0; done < content.length; ) {
    done += writeSync(descriptor, content, done, content.length - done, position + done);
  }
}

/**
 * The directory of a file, held open.
 */
class Directory implements Disposable {
  readonly #descriptor: number;

  private constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  static open({ base, parts }: HostFile, options: { create?: boolean } = {}): Directory {
    let dir = Directory.#openOne(base, O_RDONLY | O_DIRECTORY, options.create && { recursive: true });
    for (const name of parts.slice(0, -1)) {
      using parent = dir;
      const flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
      dir = Directory.#openOne(parent.at(name), flags, options.create && { recursive: false });
    }
    return dir;
  }

  /** @param create how to make it if it is not there */
  static #openOne(path: string, flags: number, create?: false | { recursive: boolean }): Directory {
    try {
      return new Directory(openSync(path, flags));
    } catch (error) {
      if (errnoCode(error) !== 'ENOENT' || !create) throw error;
      makeDir(path, create);
      return new Directory(openSync(path, flags));
    }
  }

  at(name: string): string {
    return `/proc/self/fd/${this.#descriptor}/${name}`;
  }

  [Symbol.dispose]() {
    closeSync(this.#descriptor);
  }
}

function makeDir(path: string, options: { recursive: boolean }): void {
  try {
    mkdirSync(path, { ...options, mode: dirMode });
  } catch (error) {
    if (errnoCode(error) !== 'EEXIST') throw error;
  }
}

function nameOf({ parts }: HostFile): string {
  return parts.at(-1) as string;
}

const hints: Record<string, string> = {
  ENOSPC: 'free space on that file system',
  EROFS: 'the file system is read-only: check the mounts of the driver',
  EACCES: 'the driver needs write access to that directory',
};

async function ioError(verb: string, file: HostFile, cause: unknown): Promise<MetadataError> {
  const path = hostPath(file);
  const link = await firstLink(file);
  const hint = link === undefined ? hints[errnoCode(cause) ?? ''] : `${link} is a symbolic link, remove it`;
  return new MetadataError('metadata-io', `cannot ${verb} ${path}`, {
    cause,
    path,
    retriable: true,
    ...(hint === undefined ? {} : { hint }),
  });
}

/** A link in the place of one of our directories, or of the file: the kernel's error text does not tell. */
async function firstLink({ base, parts }: HostFile): Promise<string | undefined> {
  for (let count = 1; count <= parts.length; count++) {
    const path = join(base, ...parts.slice(0, count));
    try {
      if ((await lstat(path)).isSymbolicLink()) return path;
    } catch {
      return undefined;
    }
  }
  return undefined;
}
