import koffi from 'koffi';

/** Layout of 64-bit Linux, in bytes: `struct mmsghdr`, of which the `msghdr` is the beginning, and `struct iovec`. */
const message = { bytes: 64, vectors: 16, vectorCount: 24, received: 56 } as const;
const vector = { bytes: 16, base: 0, length: 8 } as const;

/**
 * Memory for several datagrams that one call of recvmmsg(2) receives. Only pages that the kernel has written to are
 * resident.
 */
export class AnswerBuffers implements Disposable {
  /** Array of `struct mmsghdr`. */
  readonly messages: bigint;
  readonly count: number;
  readonly #view: DataView;
  readonly #datagramBytes: number;
  readonly #dataAt: number;

  /** @param datagramBytes at most, of one datagram */
  constructor(count: number, datagramBytes: number) {
    const vectorsAt = count * message.bytes;
    this.count = count;
    this.#datagramBytes = datagramBytes;
    this.#dataAt = vectorsAt + count * vector.bytes;
    const bytes = this.#dataAt + count * datagramBytes;
    // Not JavaScript's memory: the structures contain addresses.
    this.messages = koffi.alloc('uint8_t', bytes);
    this.#view = new DataView(koffi.view(this.messages, bytes));
    for (let index = 0; index < count; index++) {
      const [messageAt, vectorAt] = [index * message.bytes, vectorsAt + index * vector.bytes];
      this.#put(messageAt + message.vectors, this.messages + BigInt(vectorAt));
      this.#put(messageAt + message.vectorCount, 1n);
      this.#put(vectorAt + vector.base, this.messages + BigInt(this.#dataAt + index * datagramBytes));
      this.#put(vectorAt + vector.length, BigInt(datagramBytes));
    }
  }

  /**
   * A copy of a received datagram, since the next answer goes into the same memory; cut if it was longer than expected.
   * @returns `isComplete`: whether all of it fitted, if it was received with `MSG_TRUNC`
   */
  take(index: number): { datagram: Buffer; isComplete: boolean } {
    const size = this.#view.getUint32(index * message.bytes + message.received, true);
    const bytes = Math.min(size, this.#datagramBytes);
    const from = new Uint8Array(this.#view.buffer, this.#dataAt + index * this.#datagramBytes, bytes);
    return { datagram: Buffer.from(from), isComplete: bytes === size };
  }

  [Symbol.dispose](): void {
    koffi.free(this.messages);
  }

  #put(at: number, value: bigint): void {
    this.#view.setBigUint64(at, value, true);
  }
}
