import { execFileSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { MetadataError, readMetadata, readMetadataFile } from '../../../../../src/framework/metadata/index.ts';
import { tempDir } from '../../../../doubles/temp-dir.ts';
import { documentOf, golden, samples } from '../samples.ts';

const kernel = documentOf(samples.kernel as NonNullable<typeof samples.kernel>);
const whole = Buffer.from(golden('v1/kernel.golden', ''));

let dir: ReturnType<typeof tempDir>;
let path: string;
beforeEach(() => {
  dir = tempDir();
  path = join(dir.path, 'metadata.json');
});
afterEach(() => dir[Symbol.dispose]());

/** What the reader makes of a file: the document, or one of its own errors with the path in it. */
async function outcome(content: Uint8Array | string) {
  writeFileSync(path, content);
  try {
    return await readMetadataFile(path);
  } catch (error) {
    expect(error).toBeInstanceOf(MetadataError);
    const { code, message, path: subject } = error as MetadataError;
    expect(['metadata-malformed', 'metadata-version-unknown', 'metadata-io']).toContain(code);
    expect(message).toContain(path);
    expect(subject).toBe(path);
    return code;
  }
}

describe('readMetadataFile', () => {
  it('reads an existing file', async () => {
    expect(await outcome(whole)).toEqual(kernel);
  });

  it.each([
    ['bytes that are not UTF-8', Buffer.from(whole).fill(0xff, 200, 201), 'it is not UTF-8'],
    ['a truncated UTF-8 character', Buffer.from([...whole, 0xc3]), 'it is not UTF-8'],
    ['a byte order mark', Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), whole]), 'no JSON object at offset 0'],
    ['zeros, which a power loss can leave', Buffer.alloc(512), 'no JSON object at offset 0'],
    ['objects that are nested too deeply', '{"a":'.repeat(200_000), 'is nested more than 64 levels deep'],
    ['a list of objects', `[${whole.toString('utf8').replace('}\n{', '},{')}]`, 'no JSON object at offset 0'],
  ])('names the file and the reason if it is unusable: %s', async (_what, content, reason) => {
    writeFileSync(path, content);
    const error = await readMetadataFile(path).catch((thrown) => thrown);
    expect(error).toMatchObject({ message: `metadata file ${path} cannot be decoded`, path });
    expect((error as MetadataError).cause).toMatchObject({ message: expect.stringContaining(reason) });
  });

  it.each([
    ['an empty file', ''],
    ['blanks, which a withdrawn file contains', `${' '.repeat(511)}\n`],
  ])('reports that a file is not written yet: %s', async (_what, content) => {
    writeFileSync(path, content);
    await expect(readMetadata(path)).rejects.toMatchObject({
      code: 'metadata-not-found',
      message: `metadata file ${path} is empty`,
      path,
      retriable: true,
    });
  });

  it('reports a missing file', async () => {
    await expect(readMetadata(path)).rejects.toMatchObject({ code: 'metadata-not-found', path, retriable: false });
  });

  it('rejects a huge file, a directory and a pipe without a writer', async () => {
    const file = openSync(path, 'w');
    ftruncateSync(file, 64 * 1024 ** 3);
    closeSync(file);
    const huge = await readMetadata(path).catch((thrown) => thrown);
    expect(huge).toMatchObject({ code: 'metadata-io', cause: { message: 'it has more than 4194304 bytes' } });
    const inside = join(dir.path, 'directory');
    mkdirSync(inside);
    await expect(readMetadata(inside)).rejects.toMatchObject({ code: 'metadata-io', path: inside });
    const pipe = join(dir.path, 'pipe');
    execFileSync('mkfifo', [pipe]);
    await expect(readMetadata(pipe)).rejects.toMatchObject({ cause: { message: 'it is not a regular file' } });
  });
});
