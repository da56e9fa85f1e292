import { open } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { decodeStream } from './codec.ts';
import type { MetadataDocument } from './document.ts';
import { MetadataError } from './errors.ts';

/** With a writer that never pauses, two reads in a row agree after a few tries; this many differ only if files lie. */
const maxAttempts = 1000;

/**
 * Reads a metadata file. One `pwrite` is not atomic towards a reader, so the file is read until two reads in a row give
 * the same bytes: what is returned stood in the file as a whole.
 * @throws MetadataError with the path: `metadata-io`, `metadata-malformed`, `metadata-version-unknown`
 */
export async function readMetadataFile(path: string): Promise<MetadataDocument> {
  const text = await readStable(path);
  try {
    return decodeStream(text);
  } catch (cause) {
    const code = cause instanceof MetadataError ? cause.code : 'metadata-malformed';
    throw new MetadataError(code, `metadata file ${path} cannot be decoded`, { cause, path });
  }
}

async function readStable(path: string): Promise<string> {
  try {
    const file = await open(path, 'r');
    try {
      let before = await readOnce(file);
      for (let attempt = 1; attempt < maxAttempts; attempt++) {
        const now = await readOnce(file);
        if (now.equals(before)) return now.toString('utf8');
        before = now;
        await setImmediate();
      }
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw new MetadataError('metadata-io', `cannot read metadata file ${path}`, { cause, path, retriable: true });
  }
  throw new MetadataError('metadata-io', `metadata file ${path} changed during each of ${maxAttempts} reads`, {
    path,
    retriable: true,
  });
}

/** The whole file from its start: reading on until nothing more comes, since it may grow meanwhile. */
async function readOnce(file: Awaited<ReturnType<typeof open>>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for (let position = 0; ; ) {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(16384), 0, 16384, position);
    if (bytesRead === 0) return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks);
    chunks.push(buffer.subarray(0, bytesRead));
    position += bytesRead;
  }
}
