import { FrameReader } from '../frame-reader.ts';
import { StatusCode, TtrpcError } from './status.ts';

export const ttrpcHeaderBytes = 10;
/** Maximum data of a frame. Go refuses to send more and discards what it receives. */
export const maxDataBytes = 4 * 1024 * 1024;

export const FrameType = { request: 1, response: 2, data: 3 } as const;
export type FrameType = (typeof FrameType)[keyof typeof FrameType];

/** Flags of a request: the caller will send data frames. A unary call has none. */
export const requestOpensStream = 0x02;

interface FrameHead {
  streamId: number;
  /** A `FrameType`, or an unknown number. Frames of unknown types are to be ignored. */
  type: number;
  flags: number;
}

export interface TtrpcFrame extends FrameHead {
  data: Buffer;
}

/** A frame that announced more than `maxDataBytes`; its data is discarded on arrival. */
export interface OversizeFrame extends FrameHead {
  oversizeBytes: number;
}

/**
 * Encodes a frame as one buffer: the header (u32 length, u32 stream id, u8 type, u8 flags; big endian), then the data.
 * @throws TtrpcError `resourceExhausted` if the data exceeds `maxDataBytes`
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

export class TtrpcFrameDecoder {
  readonly #reader = new FrameReader({ headerBytes: ttrpcHeaderBytes, lengthAt: 0, maxBodyBytes: maxDataBytes });

  /**
   * Decodes the next bytes of the stream.
   * @param emit called in order, for each frame that `chunk` completes and for each header whose announced length is too large
   */
  push(chunk: Uint8Array, emit: (frame: TtrpcFrame | OversizeFrame) => void): void {
    this.#reader.push(
      chunk,
      (header, data) => emit({ ...parseHead(header), data }),
      (header, oversizeBytes) => emit({ ...parseHead(header), oversizeBytes }),
    );
  }
}

function parseHead(header: Buffer): FrameHead {
  return { streamId: header.readUInt32BE(4), type: header.readUInt8(8), flags: header.readUInt8(9) };
}
