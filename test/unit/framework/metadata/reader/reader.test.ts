import { execFileSync } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { decodeUtf8 } from '../../../../../src/framework/metadata/document/decode.ts';
import {
  decodeMetadata,
  MetadataError,
  readMetadata,
  readMetadataFile,
} from '../../../../../src/framework/metadata/index.ts';
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
  it('reads what is there', async () => {
    expect(await outcome(whole)).toEqual(kernel);
  });

  it.each([
    ['bytes that are not UTF-8', Buffer.from(whole).fill(0xff, 200, 201), 'it is not UTF-8'],
    ['a cut character', Buffer.from([...whole, 0xc3]), 'it is not UTF-8'],
    ['a byte order mark', Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), whole]), 'no JSON object at offset 0'],
    ['zeros, as a power loss leaves them', Buffer.alloc(512), 'no JSON object at offset 0'],
    ['depth', '{"a":'.repeat(200_000), 'is over 64 deep'],
    ['a stream that is a list', `[${whole.toString('utf8').replace('}\n{', '},{')}]`, 'no JSON object at offset 0'],
  ])('says which file it is, and why it cannot be used: %s', async (_what, content, reason) => {
    writeFileSync(path, content);
    const error = await readMetadataFile(path).catch((thrown) => thrown);
    expect(error).toMatchObject({ message: `metadata file ${path} cannot be decoded`, path });
    expect((error as MetadataError).cause).toMatchObject({ message: expect.stringContaining(reason) });
  });

  it.each([
    ['nothing', ''],
    ['blanks, as a withdrawn file has them', `${' '.repeat(511)}\n`],
  ])('says that a file is not written yet: %s', async (_what, content) => {
    writeFileSync(path, content);
    await expect(readMetadata(path)).rejects.toMatchObject({
      code: 'metadata-not-found',
      message: `metadata file ${path} is empty`,
      path,
      retriable: true,
    });
  });

  it('says that there is no file', async () => {
    await expect(readMetadata(path)).rejects.toMatchObject({ code: 'metadata-not-found', path, retriable: false });
  });

  it('does not read without end: a huge file, a directory, a pipe without a writer', async () => {
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

/** The same without the file: a reader looks twice at what it cannot decode, which takes time. */
function decoded(bytes: Uint8Array | string) {
  try {
    return decodeMetadata(decodeUtf8(Buffer.from(bytes)));
  } catch (error) {
    expect(error).toBeInstanceOf(MetadataError);
    expect(['metadata-malformed', 'metadata-version-unknown']).toContain((error as MetadataError).code);
    return (error as MetadataError).code;
  }
}

describe('the reader, fed with anything', () => {
  const options = { numRuns: 2_000 };

  it('answers bytes in a file with its own errors, which name the file', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 1, maxLength: 4096 }), async (bytes) => {
        // A blank file is one that was not written yet.
        fc.pre(bytes.some((byte) => ![0x20, 0x0a, 0x0d, 0x09].includes(byte)));
        expect(typeof (await outcome(bytes))).toBe('string');
      }),
      { numRuns: 25 },
    );
  });

  it('answers bytes with its own errors, nothing else', () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 4096 }),
      fc.string({ unit: 'binary' }).map((text) => Buffer.from(text)),
    );
    fc.assert(
      fc.property(bytes, (each) => {
        expect(typeof decoded(each)).toBe('string');
      }),
      options,
    );
  });

  it('answers JSON of any shape with its own errors', () => {
    const object = fc
      .tuple(fc.dictionary(fc.string(), fc.jsonValue()), fc.constantFrom('v1beta1', 'v1alpha1', 'v9'))
      .map(([rest, version]) => ({
        ...rest,
        apiVersion: `metadata.resource.k8s.io/${version}`,
        kind: 'DeviceMetadata',
      }));
    fc.assert(
      fc.property(fc.array(fc.oneof(object, fc.jsonValue()), { maxLength: 3 }), (values) => {
        decoded(values.map((value) => JSON.stringify(value)).join('\n'));
      }),
      options,
    );
  });

  it('answers a good file with values of another type in it', () => {
    const [first = ''] = whole.toString().split('}\n{');
    const paths: (string | number)[][] = [];
    const walk = (value: unknown, at: (string | number)[]) => {
      paths.push(at);
      if (typeof value === 'object' && value !== null) {
        for (const [key, each] of Object.entries(value)) walk(each, [...at, Array.isArray(value) ? Number(key) : key]);
      }
    };
    const document = JSON.parse(`${first}}`);
    walk(document, []);
    const replaced = (at: (string | number)[], value: unknown, within: unknown = document): unknown => {
      const [key, ...rest] = at;
      if (key === undefined) return value;
      const copy = Array.isArray(within) ? [...within] : { ...(within as object) };
      (copy as Record<string | number, unknown>)[key] = replaced(rest, value, (within as never)[key]);
      return copy;
    };
    fc.assert(
      fc.property(fc.constantFrom(...paths), fc.jsonValue(), (at, value) => {
        decoded(JSON.stringify(replaced(at, value)) ?? '');
      }),
      options,
    );
  });

  it('answers a good file with some bytes changed', () => {
    const change = fc.tuple(fc.nat({ max: whole.length - 1 }), fc.integer({ min: 0, max: 255 }));
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), (changes) => {
        const bytes = Buffer.from(whole);
        for (const [at, value] of changes) bytes[at] = value;
        decoded(bytes);
      }),
      options,
    );
  });

  it('refuses a file that was cut anywhere', () => {
    // The line feed at the end, and a cut between the two objects, leave a whole document.
    const between = whole.indexOf('}\n{') + 1;
    for (let end = 0; end < whole.length - 1; end++) {
      if (end === between || end === between + 1) continue;
      expect(decoded(whole.subarray(0, end))).toBe('metadata-malformed');
    }
  });
});
