import { readSync } from 'node:fs';

/**
 * Reads standard input to its end. Node.js makes a pipe non-blocking as soon as anything asks for `process.stdin`, and
 * `readFileSync(0)` then fails with EAGAIN whenever the other program is slower.
 * @throws Error of `read(2)`
 */
export function readStandardInput(fd = 0): string {
  const chunks: Buffer[] = [];
  const buffer = Buffer.alloc(64 * 1024);
  for (;;) {
    const length = readOrWait(fd, buffer);
    if (length === 0) return Buffer.concat(chunks).toString('utf8');
    if (length !== undefined) chunks.push(Buffer.from(buffer.subarray(0, length)));
  }
}

/** @returns how many bytes were read, 0 at the end; `undefined` if there are none yet, after a short wait */
function readOrWait(fd: number, buffer: Buffer): number | undefined {
  try {
    return readSync(fd, buffer);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EAGAIN') throw error;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
    return undefined;
  }
}
