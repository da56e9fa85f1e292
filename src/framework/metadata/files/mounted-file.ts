import { createHash } from 'node:crypto';
import { constants, readSync } from 'node:fs';
import { maxNameBytes } from '../layouts/paths.ts';
import { createFile, type HostFile, nameOf, removeFile, renameFile, withFile, writeAll } from './host-file.ts';

/** Files grow in steps, so that the length of a mounted file seldom changes under a reader. */
const growthStepBytes = 256;

/**
 * Writes this content to a file, whether or not the file exists. Containers may have mounted an existing file: it is
 * overwritten by one `pwrite` to the same inode, without truncation, so that a reader never finds it empty or cut off. Shorter
 * content is padded with blanks, which JSON ignores; for longer content the file is first extended with blanks. An empty text
 * leaves only blanks. A withdrawn file gets its content first and then its name. A file that already has this content is not
 * written.
 * @returns whether anything was written
 */
export function putFile(file: HostFile, text: string): boolean {
  const found = overwrite(file, text);
  if (found !== undefined) return found !== 'equal';
  const withdrawn = withdrawnFile(file);
  if (overwrite(withdrawn, text, { isRare: true }) === undefined) createFile(file, text);
  else renameFile(withdrawn, nameOf(file));
  return true;
}

/**
 * Hides a file from new containers, and blanks it for containers that have mounted it: they keep its inode, and see the content
 * of the next `putFile`. A missing file is no error.
 */
export function withdrawFile(file: HostFile): void {
  const withdrawn = withdrawnFile(file);
  // The rename comes first: no container may start with a blank file.
  renameFile(file, nameOf(withdrawn));
  // A process that was killed may have left content in the hidden file.
  overwrite(withdrawn, '', { isRare: true });
}

/** Removes a file, or the withdrawn file in its place; missing files are no error. */
export function removeMountedFile(file: HostFile): void {
  removeFile(file);
  removeFile(withdrawnFile(file));
}

/** Returns the place of a withdrawn file: a hidden name in the same directory, with a digest in place of a long name. */
export function withdrawnFile(file: HostFile): HostFile {
  const [name, end] = [nameOf(file), '.withdrawn'];
  const fits = Buffer.byteLength(`.${name}${end}`) <= maxNameBytes;
  const hidden = fits ? name : createHash('sha256').update(name).digest('base64url');
  return { ...file, parts: [...file.parts.slice(0, -1), `.${hidden}${end}`] };
}

/** Overwrites an existing file. @returns `undefined` if the file does not exist */
function overwrite(file: HostFile, text: string, options: { isRare?: boolean } = {}) {
  return withFile(
    file,
    'update',
    constants.O_RDWR,
    (descriptor, size) => {
      const content = Buffer.from(text);
      const present = Buffer.alloc(size);
      readSync(descriptor, present, 0, size, 0);
      if (present.toString().trimEnd() === text.trimEnd()) return 'equal';
      const length = content.length <= size ? size : Math.ceil(content.length / growthStepBytes) * growthStepBytes;
      if (length > size) writeAll(descriptor, Buffer.alloc(length - size, ' '), size);
      writeAll(descriptor, Buffer.concat([content, Buffer.alloc(length - content.length, ' ')]), 0);
      return 'overwritten';
    },
    options,
  );
}
