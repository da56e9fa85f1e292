/**
 * Parses JSON values, one per line, however the bytes are split into chunks.
 * @throws SyntaxError for a line that is not JSON; a last line without a newline counts as truncated and is dropped
 */
export async function* readJsonLines<T>(chunks: AsyncIterable<Buffer>): AsyncGenerator<T, void, void> {
  // Collects bytes, since a character may be split, and joins the parts of a line once.
  let parts: Buffer[] = [];
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      const line = Buffer.concat([...parts, chunk.subarray(start, end)]).toString();
      parts = [];
      start = end + 1;
      if (line.trim() !== '') yield JSON.parse(line);
    }
    if (start < chunk.length) parts.push(chunk.subarray(start));
  }
}
