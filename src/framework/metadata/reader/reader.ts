import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { errnoCode } from '../../../lib/errors.ts';
import { type DecodedMetadata, decodeMetadata, decodeStream, decodeUtf8 } from '../document/decode.ts';
import type { MetadataDocument } from '../document/document.ts';
import { MetadataError } from '../errors.ts';

/** Number of reads: even if a writer never pauses, two successive reads soon agree, except on a broken file system. */
const maxAttempts = 1000;
/**
 * Delay before a second read of a file that cannot be decoded, ms: if a writer is stopped in the middle of a write, the content
 * is mixed.
 */
const secondLookMs = 20;
const maxLooks = 5;
/** Limit for the length of a file; the largest document that the API allows has about 300 kB. */
const maxFileBytes = 4 * 1024 * 1024;
const chunkBytes = 16384;

/**
 * Reads a metadata file with one request, as netdra and the Go helper write it. A `pwrite` is not atomic for readers: the file
 * is read until two successive reads give the same bytes, so that the returned content was in the file as a whole.
 * @throws MetadataError with the path: `metadata-not-found` if there is no file; the same code, but retriable, if the file is
 * empty, since it is not written yet or was withdrawn; `metadata-io`, `metadata-malformed`, `metadata-version-unknown`
 */
export async function readMetadataFile(path: string): Promise<MetadataDocument> {
  return await readDecoded(path, decodeStream);
}

/** Reads a metadata file with one or several requests. @throws as `readMetadataFile` */
export async function readMetadata(path: string): Promise<DecodedMetadata> {
  return await readDecoded(path, decodeMetadata);
}

async function readDecoded<T>(path: string, decode: (text: string) => T): Promise<T> {
  let before: Buffer | undefined;
  for (let look = 1; ; look++) {
    const bytes = await readStable(path);
    if (isBlank(bytes)) {
      const hint = 'its driver has not written it yet, or has withdrawn it';
      throw new MetadataError('metadata-not-found', `metadata file ${path} is empty`, { path, hint, retriable: true });
    }
    try {
      return decode(decodeUtf8(bytes));
    } catch (cause) {
      if (look === maxLooks || before?.equals(bytes)) {
        const code = cause instanceof MetadataError ? cause.code : 'metadata-malformed';
        throw new MetadataError(code, `metadata file ${path} cannot be decoded`, { cause, path });
      }
    }
    before = bytes;
    await setTimeout(secondLookMs);
  }
}

/** Returns whether a file is blank: its container still waits at the gate, or the driver has withdrawn the content. */
function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => [0x20, 0x0a, 0x0d, 0x09].includes(byte));
}

export function isNotWritten(error: unknown): boolean {
  return error instanceof MetadataError && error.code === 'metadata-not-found' && error.retriable;
}

async function readStable(path: string): Promise<Buffer> {
  try {
    // Non-blocking, since the file may be a pipe.
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    if (!(await file.stat()).isFile()) throw new Error('it is not a regular file');
    let before = await readOnce(file);
    for (let attempt = 1; attempt < maxAttempts; attempt++) {
      const now = await readOnce(file);
      if (now.equals(before)) return now;
      before = now;
      await setImmediate();
    }
  } catch (cause) {
    const isMissing = errnoCode(cause) === 'ENOENT';
    const code = isMissing ? 'metadata-not-found' : 'metadata-io';
    throw new MetadataError(code, `cannot read metadata file ${path}`, { cause, path, retriable: !isMissing });
  }
  const message = `metadata file ${path} changed during each of ${maxAttempts} reads`;
  throw new MetadataError('metadata-io', message, { path, retriable: true });
}

/** Reads the file from its start to its end, which may move during the read. */
async function readOnce(file: FileHandle): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for (let position = 0; ; ) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(chunkBytes), 0, chunkBytes, position);
    if (bytesRead === 0) return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    chunks.push(buffer.subarray(0, bytesRead));
    position += bytesRead;
    if (position > maxFileBytes) throw new Error(`it has more than ${maxFileBytes} bytes`);
  }
}
