/** Memory for the log, in bytes: half an hour of a busy node. */
const ringBytes = 1_000_000;
/** Longer lines are cut off, so that no error with a tenant's text in it takes the place of all others. In bytes. */
const maxLineBytes = 8_192;

const cutMark = Buffer.from('…\n');
const newline = 10;

/** The newest lines of a log, in a buffer that is allocated once: what is logged cannot make it larger. */
export class LogRing {
  readonly #buffer: Buffer;
  readonly #maxLineBytes: number;
  /** Where the next line begins. */
  #end = 0;
  #isFull = false;

  /** @param maxBytes at least two of the longest lines */
  constructor(maxBytes = ringBytes, longestLineBytes = maxLineBytes) {
    this.#buffer = Buffer.alloc(maxBytes);
    this.#maxLineBytes = longestLineBytes;
  }

  /** @param line ends with a newline; one that does not counts as cut off */
  write(line: string): void {
    // No character has less than a byte: the rest of a long line is not even encoded.
    const bytes = Buffer.from(line.length > this.#maxLineBytes ? line.slice(0, this.#maxLineBytes) : line);
    const isWhole = bytes.length <= this.#maxLineBytes && bytes.at(-1) === newline;
    const kept = bytes.subarray(0, this.#maxLineBytes - cutMark.length);
    this.#append(isWhole ? bytes : Buffer.concat([kept, cutMark]));
  }

  /** All lines that are whole, the oldest one first. */
  text(): string {
    const newest = this.#buffer.subarray(0, this.#end);
    if (!this.#isFull) return newest.toString();
    const bytes = Buffer.concat([this.#buffer.subarray(this.#end), newest]);
    // The oldest line has been overwritten in part.
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
