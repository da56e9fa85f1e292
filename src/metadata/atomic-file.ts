import { mkdir, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { errnoCode } from '../errors.ts';
import { MetadataError } from './errors.ts';

const fileMode = 0o644;
const dirMode = 0o755;

/** Files that grow do so in steps, so that the length of a mounted file seldom changes under a reader. */
const growthStepBytes = 256;

/**
 * Puts a whole file into place: temporary file in the same directory, then rename. For files that nobody has mounted
 * yet: a bind mount pins the inode and would go on showing the old content. The temporary name starts with a dot and
 * ends in `.tmp`, which CDI scanners pass over. No fsync: after a power loss the kubelet prepares the claim again.
 * @throws MetadataError `metadata-io`
 */
export async function createFile(path: string, text: string): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.${crypto.randomUUID()}.tmp`);
  try {
    await mkdir(dirname(path), { recursive: true, mode: dirMode });
    const file = await open(temporary, 'wx', fileMode);
    try {
      await file.writeFile(text);
      await file.chmod(fileMode);
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (cause) {
    await rm(temporary, { force: true }).catch(() => undefined);
    throw ioError('write', path, cause);
  }
}

/**
 * Replaces the content of a file that containers may have mounted: one `pwrite` over the same inode, no truncation, so
 * that a reader never finds it empty or cut off. Shorter content is padded with blanks, which JSON ignores; before
 * longer content the file is first lengthened with blanks.
 * @returns `false` if there is no such file
 * @throws MetadataError `metadata-io`
 */
export async function overwriteFile(path: string, text: string): Promise<boolean> {
  try {
    const file = await open(path, 'r+');
    try {
      const { size } = await file.stat();
      const content = Buffer.from(text);
      const length = content.length <= size ? size : Math.ceil(content.length / growthStepBytes) * growthStepBytes;
      if (length > size) await writeAll(file, Buffer.alloc(length - size, ' '), size);
      await writeAll(file, Buffer.concat([content, Buffer.alloc(length - content.length, ' ')]), 0);
      return true;
    } finally {
      await file.close();
    }
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return false;
    throw ioError('update', path, cause);
  }
}

async function writeAll(file: Awaited<ReturnType<typeof open>>, content: Buffer, position: number): Promise<void> {
  // The kernel takes a regular file's buffer whole; a short write means a full disk, and the next one says so.
  for (let done = 0; done < content.length; ) {
    const { bytesWritten } = await file.write(content, done, content.length - done, position + done);
    done += bytesWritten;
  }
}

/** The file's text, or `undefined` if it does not exist. */
export async function readFileIfThere(path: string): Promise<string | undefined> {
  try {
    const file = await open(path, 'r');
    try {
      return await file.readFile('utf8');
    } finally {
      await file.close();
    }
  } catch (cause) {
    if (errnoCode(cause) === 'ENOENT') return undefined;
    throw ioError('read', path, cause);
  }
}

/** Renames a file over another; one that is not there is fine. */
export async function renameIfThere(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (cause) {
    if (errnoCode(cause) !== 'ENOENT') throw ioError('rename', from, cause);
  }
}

/** Removes a file or a directory with all that is in it; one that is not there is fine. */
export async function remove(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (cause) {
    throw ioError('remove', path, cause);
  }
}

export function ioError(verb: string, path: string, cause: unknown): MetadataError {
  const hints: Record<string, string> = {
    ENOSPC: 'free space on that file system',
    EROFS: 'the file system is read-only: check the mounts of the driver',
    EACCES: 'the driver needs write access to that directory',
  };
  const hint = hints[errnoCode(cause) ?? ''];
  return new MetadataError('metadata-io', `cannot ${verb} ${path}`, {
    cause,
    path,
    retriable: true,
    ...(hint === undefined ? {} : { hint }),
  });
}
