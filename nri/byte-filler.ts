const nothing = Buffer.alloc(0);

/**
 * Collects a known number of bytes that arrive in pieces, in place. Both frame decoders consist of two of these, one
 * for the header and one for what follows: joining the pieces anew for each chunk would copy a 4 MiB message a
 * thousand times.
 */
export class ByteFiller {
  #bytes: Buffer = nothing;
  #filled = 0;

  constructor(size: number) {
    this.reset(size);
  }

  get full(): boolean {
    return this.#filled === this.#bytes.length;
  }

  /** The collected bytes; valid once `full`. The buffer is not reused after the next `reset`. */
  get bytes(): Buffer {
    return this.#bytes;
  }

  /** Starts over, with a new buffer so that the old one can be handed out. */
  reset(size: number): void {
    this.#bytes = size === 0 ? nothing : Buffer.allocUnsafeSlow(size);
    this.#filled = 0;
  }

  /** Starts over in the same buffer. */
  rewind(): void {
    this.#filled = 0;
  }

  /**
   * Copies what is still missing from `chunk`, beginning at `offset`.
   * @returns the offset of the first byte not taken
   */
  take(chunk: Uint8Array, offset: number): number {
    const end = Math.min(chunk.length, offset + this.#bytes.length - this.#filled);
    this.#bytes.set(chunk.subarray(offset, end), this.#filled);
    this.#filled += end - offset;
    return end;
  }
}
