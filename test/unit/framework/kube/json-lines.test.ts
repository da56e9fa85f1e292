import { describe, expect, it } from 'vitest';
import { readJsonLines } from '../../../../src/framework/kube/json-lines.ts';

async function read(text: string): Promise<unknown[]> {
  async function* arrive() {
    yield Buffer.from(text);
  }
  const values: unknown[] = [];
  for await (const value of readJsonLines(arrive())) values.push(value);
  return values;
}

// However the bytes are split: the fuzz target kube-lines.
describe('readJsonLines', () => {
  it('skips a truncated last line and blank lines', async () => {
    expect(await read('{"a":1}\n\n  \n{"b":2}\n{"c"')).toEqual([{ a: 1 }, { b: 2 }]);
  });

  it('fails for a line that is not JSON', async () => {
    await expect(read('{"a":1}\nnonsense\n')).rejects.toThrow(SyntaxError);
  });
});
