/** Texts that contents of fields may begin with. */
export class Prefixes {
  readonly #all: readonly Buffer[];
  /** Those that a content with this first byte may have. */
  readonly #byInitial: readonly Buffer[][];

  constructor(all: readonly Buffer[]) {
    this.#all = all;
    this.#byInitial = Array.from({ length: 256 }, (_, byte) => all.filter(([first]) => (first ?? byte) === byte));
  }

  without(prefix: Buffer): Prefixes {
    return new Prefixes(this.#all.filter((each) => each !== prefix));
  }

  /** @returns the prefix of the content between two offsets, if any */
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

/** Weight of the last byte of the longest varint, which has ten. */
const longestFactor = 2 ** 63;

/**
 * Walks over the fields of an encoded message without decoding them, and without allocating memory for them. Accepts any
 * bytes. Source: protobuf encoding, "Message structure".
 */
export class FieldReader {
  readonly #bytes: Buffer;
  readonly #limit: number;
  #offset: number;
  /** Of the present field, or of the bytes that are no field. */
  start: number;
  number = 0;
  wireType = 0;
  /** Where its content starts, after the length if it has one. */
  body: number;
  /** Where it ends. */
  end: number;

  /** @param start offset of the message in `bytes`; `limit` is its end */
  constructor(bytes: Buffer, start = 0, limit = bytes.length) {
    this.#bytes = bytes;
    this.#limit = limit;
    this.#offset = start;
    this.start = start;
    this.body = start;
    this.end = start;
  }

  /** Goes to the next field. @returns `false` at the end, and where no field can be read: there `start` is before the end */
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
   * Skips the following fields of the same number, up to one that `stops` or is longer than 127 bytes. One loop without
   * calls: messages have up to a million such fields.
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
    // Cut off, or longer than any number: beyond the limit.
    this.#offset = this.#limit + 1;
    return value;
  }
}
