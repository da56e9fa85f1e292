import type { TarEntry } from '../../node/tar.ts';

const fileTypes = { directory: 0o040000, file: 0o100000, symlink: 0o120000 } as const;
const trailer = 'TRAILER!!!';

/**
 * Encodes entries as a cpio archive in the form that Linux takes as its first root, in their order. Owner is root, time
 * 1970: the same entries give the same bytes. Folders come before what is in them.
 * Source: kernel Documentation/driver-api/early-userspace/buffer-format.rst.
 */
export function encodeCpio(entries: readonly TarEntry[]): Buffer {
  const members = entries.map((entry, index) => encodeMember(entry.path, modeOf(entry), dataOf(entry), index + 1));
  return Buffer.concat([...members, encodeMember(trailer, 0, Buffer.alloc(0), 0)]);
}

function modeOf(entry: TarEntry): number {
  if (entry.type === 'symlink') return fileTypes.symlink | 0o777;
  return fileTypes[entry.type] | (entry.mode ?? (entry.type === 'directory' ? 0o755 : 0o644));
}

function dataOf(entry: TarEntry): Uint8Array {
  if (entry.type === 'file') return entry.data;
  return Buffer.from(entry.type === 'symlink' ? entry.target : '');
}

/** Thirteen numbers of eight hexadecimal digits after the magic, then name and data, each filled up to four bytes. */
function encodeMember(path: string, mode: number, data: Uint8Array, inode: number): Buffer {
  const name = Buffer.from(`${path}\0`);
  const [owner, group, links, time] = [0, 0, 1, 0];
  const numbers = [inode, mode, owner, group, links, time, data.length, 0, 0, 0, 0, name.length, 0];
  const head = Buffer.from(`070701${numbers.map((each) => each.toString(16).padStart(8, '0')).join('')}`);
  return Buffer.concat([...pad(Buffer.concat([head, name])), ...pad(data)]);
}

function pad(data: Uint8Array): Uint8Array[] {
  return [data, Buffer.alloc((4 - (data.length % 4)) % 4)];
}
