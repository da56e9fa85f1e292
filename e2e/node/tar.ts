import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

/** An entry of a tar archive. Owner is root, time 1970: the same entries give the same bytes. */
export type TarEntry =
  | { type: 'directory'; path: string; mode?: number }
  | { type: 'file'; path: string; mode?: number; data: Uint8Array }
  | { type: 'symlink'; path: string; target: string };

const blockBytes = 512;
const typeFlags = { file: '0', symlink: '2', directory: '5' } as const;

/**
 * Encodes entries as a ustar archive, in their order. Paths and targets are ASCII and at most 100 characters.
 * Source: pax(1), "ustar Interchange Format".
 */
export function encodeTar(entries: readonly TarEntry[]): Buffer {
  const blocks = entries.flatMap((entry) => {
    const data = entry.type === 'file' ? entry.data : Buffer.alloc(0);
    const padding = Buffer.alloc((blockBytes - (data.length % blockBytes)) % blockBytes);
    return [encodeHeader(entry, data.length), data, padding];
  });
  return Buffer.concat([...blocks, Buffer.alloc(2 * blockBytes)]);
}

/** Everything below a folder as entries, folders before their content. Links are not followed. */
export function readTarEntries(root: string, folder = ''): TarEntry[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry): TarEntry[] => {
    const path = join(folder, entry.name);
    const source = join(root, path);
    if (entry.isSymbolicLink()) return [{ type: 'symlink', path, target: readlinkSync(source) }];
    if (entry.isDirectory()) return [{ type: 'directory', path }, ...readTarEntries(root, path)];
    return [{ type: 'file', path, mode: lstatSync(source).mode & 0o777, data: readFileSync(source) }];
  });
}

function encodeHeader(entry: TarEntry, sizeBytes: number): Buffer {
  const header = Buffer.alloc(blockBytes);
  const target = entry.type === 'symlink' ? entry.target : '';
  if (entry.path.length > 100 || target.length > 100) throw new RangeError(`too long for a tar header: ${entry.path}`);
  const mode = entry.type === 'symlink' ? 0o777 : (entry.mode ?? (entry.type === 'directory' ? 0o755 : 0o644));
  const octal = (value: number, digits: number) => value.toString(8).padStart(digits, '0');
  header.write(entry.path, 0, 'ascii');
  header.write(octal(mode, 7), 100);
  header.write(octal(0, 7), 108);
  header.write(octal(0, 7), 116);
  header.write(octal(sizeBytes, 11), 124);
  header.write(octal(0, 11), 136);
  header.write(' '.repeat(8), 148);
  header.write(typeFlags[entry.type], 156);
  header.write(target, 157, 'ascii');
  header.write('ustar\u000000', 257);
  // The checksum counts its own field as blanks, as written above.
  const checksum = header.reduce((sum, byte) => sum + byte, 0);
  header.write(`${octal(checksum, 6)}\0 `, 148);
  return header;
}
