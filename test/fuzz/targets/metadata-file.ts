import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { decodeMetadata, MetadataError, readMetadata } from '../../../src/framework/metadata/index.ts';
import { sampleTexts } from '../samples.ts';
import { scratchDir } from '../scratch.ts';
import { expectThat, type FuzzTarget } from '../target.ts';

/** The result, or the code of the error. */
async function attempt<T>(task: () => T | Promise<T>): Promise<T | string> {
  try {
    return await task();
  } catch (error) {
    if (error instanceof MetadataError) return error.code;
    throw error;
  }
}

/**
 * Any bytes in a metadata file: the reader returns the decoder's result. Slow, since the reader waits briefly
 * for a file that cannot be decoded, which may be in the middle of a write.
 */
export const target: FuzzTarget = {
  name: 'metadata-file',
  errors: [],
  dictionary: ['\0', '\xff\xfe', '\ufeff', '   ', '{}\n', '"x":1,'],
  seeds: () => sampleTexts().map((text) => Buffer.from(text)),
  async run(input) {
    const path = join(scratchDir(), 'metadata.json');
    writeFileSync(path, input);
    const read = await attempt(() => readMetadata(path));
    const isText = Buffer.from(Buffer.from(input).toString('utf8')).equals(input);
    const decoded = isText ? await attempt(() => decodeMetadata(Buffer.from(input).toString('utf8'))) : undefined;
    if (
      Buffer.from(input)
        .toString('latin1')
        .match(/[^ \t\r\n]/) === null
    ) {
      expectThat(read === 'metadata-not-found', 'a blank file is not one that was not written yet');
    } else if (decoded === undefined) expectThat(read === 'metadata-malformed', 'bad UTF-8 was read');
    else expectThat(isDeepStrictEqual(read, decoded), 'the reader does not give what the decoder gives');
  },
};
