import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readJsonLines } from '../../../../src/framework/kube/json-lines.ts';

/** Cuts bytes at the given places. */
async function* cut(bytes: Buffer, places: number[]): AsyncGenerator<Buffer> {
  const ends = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((left, right) => left - right);
  let start = 0;
  for (const end of [...ends, bytes.length]) {
    yield bytes.subarray(start, end);
    start = end;
  }
}

async function collect<T>(values: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = [];
  for await (const value of values) collected.push(value);
  return collected;
}

describe('readJsonLines', () => {
  it('returns the written lines for any chunk boundaries', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.jsonValue()), fc.array(fc.nat()), async (values, places) => {
        const bytes = Buffer.from(values.map((value) => `${JSON.stringify(value)}\n`).join(''));
        const read = await collect(readJsonLines(cut(bytes, places)));
        expect(read).toEqual(JSON.parse(JSON.stringify(values)));
      }),
    );
  });

  it('skips a truncated last line and blank lines', async () => {
    const bytes = Buffer.from('{"a":1}\n\n  \n{"b":2}\n{"c"');
    expect(await collect(readJsonLines(cut(bytes, [])))).toEqual([{ a: 1 }, { b: 2 }]);
  });

  it('fails for a line that is not JSON', async () => {
    await expect(collect(readJsonLines(cut(Buffer.from('{"a":1}\nnonsense\n'), [])))).rejects.toThrow(SyntaxError);
  });
});
