import { closeSync, openSync, readSync } from 'node:fs';

const ptInterp = 3;

/**
 * Whether a file is an ELF program without a loader and so without shared libraries: it also runs in an image
 * that contains nothing else. Little-endian 64-bit only; anything else is "no". Source: elf(5).
 */
export function isStaticProgram(path: string): boolean {
  // In practice the program headers follow the file header; a page contains both.
  const head = Buffer.alloc(4096);
  const fd = openSync(path, 'r');
  try {
    readSync(fd, head, 0, head.length, 0);
  } finally {
    closeSync(fd);
  }
  const isElf64 = head.readUInt32BE(0) === 0x7f454c46 && head[4] === 2 && head[5] === 1;
  if (!isElf64) return false;
  const offset = Number(head.readBigUInt64LE(32));
  const [entrySizeBytes, count] = [head.readUInt16LE(54), head.readUInt16LE(56)];
  for (let index = 0; index < count; index++) {
    const at = offset + index * entrySizeBytes;
    if (at + 4 > head.length) return false;
    if (head.readUInt32LE(at) === ptInterp) return false;
  }
  return count > 0;
}
