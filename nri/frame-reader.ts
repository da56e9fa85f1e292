const nothing = Buffer.alloc(0);

export interface FrameFormat {
  headerBytes: number;
  /** Offset of the body's length in the header: u32, big endian. */
  lengthAt: number;
  maxBodyBytes: number;
}

/**
 * Finds the frames in a stream of bytes, however it is split. Each body is collected in place: concatenating the chunks
 * each time would copy a 4 MiB message a thousand times.
 */
export class FrameReader {
  readonly #format: FrameFormat;
  readonly #header: Buffer;
  #body: Buffer | undefined;
  /** Received bytes of the header; of the body once the header is complete. */
  #filledBytes = 0;
  #skipBytes = 0;

  constructor(format: FrameFormat) {
    this.#format = format;
    this.#header = Buffer.alloc(format.headerBytes);
  }

  /**
   * Reads the next bytes of the stream.
   * @param onFrame called in order for each frame that `chunk` completes. The header's memory is reused for the next frame, the
   * body's is not
   * @param onTooLong called when a header announces a body over the limit, before memory is allocated; the body is skipped
   */
  push(
    chunk: Uint8Array,
    onFrame: (header: Buffer, body: Buffer) => void,
    onTooLong: (header: Buffer, bodyBytes: number) => void,
  ): void {
    for (let offset = 0; offset < chunk.length; ) {
      if (this.#skipBytes > 0) {
        const skipped = Math.min(this.#skipBytes, chunk.length - offset);
        this.#skipBytes -= skipped;
        offset += skipped;
        continue;
      }
      offset = this.#fill(this.#body ?? this.#header, chunk, offset);
      if (this.#body === undefined && this.#filledBytes === this.#header.length) this.#startBody(onTooLong);
      const body = this.#body;
      if (this.#filledBytes !== body?.length) continue;
      this.#body = undefined;
      this.#filledBytes = 0;
      onFrame(this.#header, body);
    }
  }

  /** Copies bytes from `chunk` until `target` is full. @returns the offset of the first byte not copied */
  #fill(target: Buffer, chunk: Uint8Array, offset: number): number {
    const end = Math.min(chunk.length, offset + target.length - this.#filledBytes);
    target.set(chunk.subarray(offset, end), this.#filledBytes);
    this.#filledBytes += end - offset;
    return end;
  }

  #startBody(onTooLong: (header: Buffer, bodyBytes: number) => void): void {
    const { lengthAt, maxBodyBytes } = this.#format;
    const bytes = this.#header.readUInt32BE(lengthAt);
    this.#filledBytes = 0;
    if (bytes <= maxBodyBytes) {
      this.#body = bytes === 0 ? nothing : Buffer.allocUnsafeSlow(bytes);
    } else {
      this.#skipBytes = bytes;
      onTooLong(this.#header, bytes);
    }
  }
}
