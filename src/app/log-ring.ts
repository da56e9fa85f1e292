/** Size of the ring, in bytes: holds half an hour of a busy node. */
const ringBytes = 1_000_000;
/**
 * Limit of a line, in bytes. Longer lines are truncated, so that one error with a tenant's text cannot displace all other
 * lines.
 */
const maxLineBytes = 8_192;

const cutMark = Buffer.from('…\n');
const newline = 10;

/** The newest lines of a log, in a buffer of fixed size. */
export class LogRing {
  readonly #buffer: Buffer;
  readonly #maxLineBytes: number;
  /** Offset at which the next line is written. */
  #end = 0;
  #isFull = false;

  /** Creates a ring. @param maxBytes size of at least two of the longest lines */
  constructor(maxBytes = ringBytes, longestLineBytes = maxLineBytes) {
    this.#buffer = Buffer.alloc(maxBytes);
    this.#maxLineBytes = longestLineBytes;
  }

  /** Appends a line. @param line text that ends with a newline; a line without a newline counts as truncated */
  write(line: string): void {
    // A character takes at least one byte, so the rest of a long line need not be encoded.
    const bytes = Buffer.from(line.length > this.#maxLineBytes ? line.slice(0, this.#maxLineBytes) : line);
    const isWhole = bytes.length <= this.#maxLineBytes && bytes.at(-1) === newline;
    const kept = bytes.subarray(0, this.#maxLineBytes - cutMark.length);
    this.#append(isWhole ? bytes : Buffer.concat([kept, cutMark]));
  }

  /** Returns all complete lines, the oldest one first. */
  text(): string {
    const newest = this.#buffer.subarray(0, this.#end);
    if (!this.#isFull) return newest.toString();
    const bytes = Buffer.concat([this.#buffer.subarray(this.#end), newest]);
    // Skips the oldest line, which may be partly overwritten.
    return bytes.toString('utf8', bytes.indexOf(newline) + 1);
  }

  #append(bytes: Buffer): void {
    const fitting = bytes.copy(this.#buffer, this.#end);
    const rest = bytes.copy(this.#buffer, 0, fitting);
    this.#isFull ||= this.#end + bytes.length >= this.#buffer.length;
    this.#end = fitting < bytes.length ? rest : this.#end + fitting;
    if (this.#end === this.#buffer.length) this.#end = 0;
  }
}
