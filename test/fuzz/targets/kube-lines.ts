import { readJsonLines } from '../../../src/framework/kube/json-lines.ts';
import { expectThat, type FuzzTarget, isSame } from '../target.ts';
import { cutInPieces } from '../traffic.ts';

/** The values before an error, and the error. */
async function read(chunks: Uint8Array[]): Promise<{ values: unknown[]; error?: string }> {
  const values: unknown[] = [];
  async function* arrive() {
    for (const chunk of chunks) yield Buffer.from(chunk);
  }
  try {
    for await (const value of readJsonLines(arrive())) values.push(value);
    return { values };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { values, error: error.message };
  }
}

/** The events of an API server's watch: the same however the bytes are split. */
export const target: FuzzTarget = {
  name: 'kube-lines',
  errors: [],
  dictionary: ['\n', '\r\n', '{"type":"BOOKMARK"}\n', '__proto__'],
  seeds: () =>
    [
      '',
      '{"type":"ADDED","object":{"metadata":{"name":"ä"}}}\n{"type":"DELETED"}\n',
      '\n\n1\n"\u2028"\nnull\n{',
      // Whole characters of two, three and four bytes, so that one is split wherever the pieces end.
      `"${'ä€😀'.repeat(30)}"\n`,
      `${'['.repeat(5_000)}${']'.repeat(5_000)}\n`,
    ].map((text) => Buffer.from(text)),
  async run(input) {
    const [whole, pieces] = [await read([input]), await read(cutInPieces(input))];
    expectThat(isSame(whole, pieces), 'something else when the bytes come in pieces');
  },
};
