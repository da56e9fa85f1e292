import { ByteFiller } from '../byte-filler.ts';
import { StatusCode, TtrpcError } from './status.ts';

/** Length of the header before the data of each frame. */
export const ttrpcHeaderBytes = 10;
/** Maximum data of a frame. Go refuses to send more and discards what it receives. */
export const maxDataBytes = 4 * 1024 * 1024;

export const FrameType = { request: 1, response: 2, data: 3 } as const;
export type FrameType = (typeof FrameType)[keyof typeof FrameType];

/** Flags of a request: the caller will send data frames. A unary call has none. */
export const requestOpensStream = 0x02;

export interface TtrpcFrame {
  streamId: number;
  /** A `FrameType`, or an unknown number: those are to be ignored. */
  type: number;
  flags: number;
  data: Buffer;
}

/** A frame that announced more than `maxDataBytes`; its data is discarded as it comes in. */
export interface OversizeFrame {
  streamId: number;
  type: number;
  flags: number;
  /** Length that the header announced. */
  oversizeBytes: number;
}

/**
 * The header (u32 length, u32 stream id, u8 type, u8 flags; big endian) and the data as one buffer.
 * @throws TtrpcError `resourceExhausted` if there is more data than a frame may carry
 * Source: containerd/ttrpc PROTOCOL.md.
 */
export function encodeTtrpcFrame(frame: { streamId: number; type: number; flags?: number; data: Uint8Array }): Buffer {
  if (frame.data.length > maxDataBytes) throw oversizeError(frame.data.length);
  const bytes = Buffer.allocUnsafe(ttrpcHeaderBytes + frame.data.length);
  bytes.writeUInt32BE(frame.data.length, 0);
  bytes.writeUInt32BE(frame.streamId, 4);
  bytes.writeUInt8(frame.type, 8);
  bytes.writeUInt8(frame.flags ?? 0, 9);
  bytes.set(frame.data, ttrpcHeaderBytes);
  return bytes;
}

export function oversizeError(bytes: number): TtrpcError {
  return new TtrpcError(
    StatusCode.resourceExhausted,
    `message length ${bytes} exceeds the maximum of ${maxDataBytes} bytes`,
  );
}

/**
 * Finds the frames in a stream of bytes, however it is split. Accepts any bytes: a frame that is too long is reported
 * when its header is complete, before anything is allocated for it, and then skipped.
 */
export class TtrpcFrameDecoder {
  readonly #header = new ByteFiller(ttrpcHeaderBytes);
  readonly #data = new ByteFiller(0);
  #inData = false;
  #skipBytes = 0;

  /** @param emit called for each frame that `chunk` completes, in order */
  push(chunk: Uint8Array, emit: (frame: TtrpcFrame | OversizeFrame) => void): void {
    let offset = 0;
    while (offset < chunk.length) {
      if (this.#skipBytes > 0) {
        const skipped = Math.min(this.#skipBytes, chunk.length - offset);
        this.#skipBytes -= skipped;
        offset += skipped;
        continue;
      }
      offset = this.#inData ? this.#data.take(chunk, offset) : this.#header.take(chunk, offset);
      if (!this.#inData && this.#header.full) this.#startData(emit);
      if (this.#inData && this.#data.full) this.#finish(emit);
    }
  }

  #startData(emit: (frame: OversizeFrame) => void): void {
    const length = this.#header.bytes.readUInt32BE(0);
    if (length <= maxDataBytes) {
      this.#data.reset(length);
      this.#inData = true;
      return;
    }
    this.#skipBytes = length;
    const head = this.#takeHeader();
    emit({ ...head, oversizeBytes: length });
  }

  #finish(emit: (frame: TtrpcFrame) => void): void {
    this.#inData = false;
    const head = this.#takeHeader();
    emit({ ...head, data: this.#data.bytes });
  }

  #takeHeader(): { streamId: number; type: number; flags: number } {
    const { bytes } = this.#header;
    const head = { streamId: bytes.readUInt32BE(4), type: bytes.readUInt8(8), flags: bytes.readUInt8(9) };
    this.#header.rewind();
    return head;
  }
}
