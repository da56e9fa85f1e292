/** A set of prefixes, to match against the contents of fields. */
export class Prefixes {
  readonly #all: readonly Buffer[];
  /** Prefixes to compare, by the first byte of the content. */
  readonly #byInitial: readonly Buffer[][];

  constructor(all: readonly Buffer[]) {
    this.#all = all;
    this.#byInitial = Array.from({ length: 256 }, (_, byte) => all.filter(([first]) => (first ?? byte) === byte));
  }

  without(prefix: Buffer): Prefixes {
    return new Prefixes(this.#all.filter((each) => each !== prefix));
  }

  /** Returns the prefix with which the content between two offsets begins, if any. */
  find(bytes: Buffer, body: number, end: number): Buffer | undefined {
    const candidates = this.#byInitial[bytes[body]!];
    if (candidates === undefined) return undefined;
    for (let index = 0; index < candidates.length; index++) {
      const prefix = candidates[index]!;
      let at = prefix.length - 1;
      if (body + at >= end) continue;
      while (at >= 0 && bytes[body + at] === prefix[at]) at--;
      if (at < 0) return prefix;
    }
    return undefined;
  }
}

/** Weight of the tenth byte of a varint, which is the last one that it can have. */
const longestFactor = 2 ** 63;

/**
 * Walks over the fields of an encoded message without decoding them, and without allocating memory for them. Accepts any
 * bytes. Source: protobuf encoding, "Message structure".
 */
export class FieldReader {
  readonly #bytes: Buffer;
  readonly #limit: number;
  #offset: number;
  /** Offset of the present field, or of the first byte that belongs to no valid field. */
  start: number;
  number = 0;
  wireType = 0;
  /** Offset of the field's content, after the length if the field has one. */
  body: number;
  /** Offset behind the field. */
  end: number;

  /** Creates a reader. @param start offset of the message in `bytes` @param limit offset behind the message */
  constructor(bytes: Buffer, start = 0, limit = bytes.length) {
    this.#bytes = bytes;
    this.#limit = limit;
    this.#offset = start;
    this.start = start;
    this.body = start;
    this.end = start;
  }

  /** Goes to the next field. @returns `false` at the end, or at an invalid field: `start` is then before the end */
  next(): boolean {
    this.start = this.end;
    if (this.start >= this.#limit) return false;
    this.#offset = this.start;
    const tag = this.#varint();
    this.wireType = tag % 8;
    this.number = (tag - this.wireType) / 8;
    let bytes = 0;
    if (this.wireType === 2) bytes = this.#varint();
    else if (this.wireType === 0) this.#varint();
    else if (this.wireType === 1) bytes = 8;
    else if (this.wireType === 5) bytes = 4;
    else return false;
    this.body = this.#offset;
    const end = this.body + bytes;
    if (end > this.#limit) return false;
    this.end = end;
    return true;
  }

  /**
   * Skips the following fields with the same number. Ends before a field whose content `stops` matches, or that is longer than
   * 127 bytes. One loop without calls: messages have up to a million such fields.
   */
  skipAlike(stops?: Prefixes): void {
    const [bytes, limit, tag] = [this.#bytes, this.#limit, this.#bytes[this.start]!];
    if (tag >= 0x80) return;
    let end = this.end;
    while (end + 1 < limit && bytes[end] === tag) {
      const next = end + 2 + bytes[end + 1]!;
      if (bytes[end + 1]! >= 0x80 || next > limit) break;
      if (stops !== undefined && stops.find(bytes, end + 2, next) !== undefined) break;
      end = next;
    }
    this.end = end;
  }

  #varint(): number {
    const first = this.#bytes[this.#offset++]!;
    if (first < 0x80) return first;
    let value = first & 0x7f;
    for (let factor = 128; this.#offset < this.#limit && factor <= longestFactor; factor *= 128) {
      const byte = this.#bytes[this.#offset++]!;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
    // The varint is cut off or too long: an offset beyond the limit makes `next` return `false`.
    this.#offset = this.#limit + 1;
    return value;
  }
}
