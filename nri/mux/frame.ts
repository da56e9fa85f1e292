import { ByteFiller } from '../byte-filler.ts';
import { NriError } from '../errors.ts';

/** Length of the header before each payload. */
export const muxHeaderBytes = 8;

/**
 * The longest payload that we accept. No release of NRI writes more: up to v0.6.1 the limit was 16 MiB, since v0.7.0 it
 * is a ttrpc header and 4 MiB. The Go reader has no limit at all and allocates whatever a header announces.
 */
export const maxMuxPayloadBytes = 16 * 1024 * 1024;

/** Logical connections of NRI; 0 is reserved. */
export const MuxConnection = {
  /** The runtime calls the plugin. */
  plugin: 1,
  /** The plugin calls the runtime. */
  runtime: 2,
} as const;
export type MuxConnection = (typeof MuxConnection)[keyof typeof MuxConnection];

export interface MuxFrame {
  connectionId: number;
  payload: Buffer;
}

/** `mux-frame-too-long`: the announced length exceeds that of any frame, so this is probably not a frame at all. */
export class MuxFrameError extends NriError {
  constructor(connectionId: number, payloadBytes: number, maxBytes: number) {
    const text = `multiplexer frame of ${payloadBytes} bytes for connection ${connectionId}, at most ${maxBytes} are taken`;
    super('mux-frame-too-long', text, { hint: 'is the other side an NRI runtime?' });
  }
}

/** The 8 bytes before a payload: u32 connection id, u32 length; big endian. Source: containerd/nri pkg/net/multiplex */
export function encodeMuxHeader(connectionId: number, payloadBytes: number): Buffer {
  const bytes = Buffer.allocUnsafe(muxHeaderBytes);
  bytes.writeUInt32BE(connectionId, 0);
  bytes.writeUInt32BE(payloadBytes, 4);
  return bytes;
}

/** Finds the frames in a stream of bytes, however it is split. */
export class MuxFrameDecoder {
  readonly #maxPayloadBytes: number;
  readonly #header = new ByteFiller(muxHeaderBytes);
  readonly #payload = new ByteFiller(0);
  #inPayload = false;

  constructor(maxPayloadBytes = maxMuxPayloadBytes) {
    this.#maxPayloadBytes = maxPayloadBytes;
  }

  /**
   * @param emit called for each frame that `chunk` completes, in order
   * @throws MuxFrameError as soon as a header announces too much, before anything is allocated for it. The decoder
   * cannot continue after that.
   */
  push(chunk: Uint8Array, emit: (frame: MuxFrame) => void): void {
    let offset = 0;
    while (offset < chunk.length) {
      offset = this.#inPayload ? this.#payload.take(chunk, offset) : this.#header.take(chunk, offset);
      if (!this.#inPayload && this.#header.full) this.#startPayload();
      if (this.#inPayload && this.#payload.full) this.#finish(emit);
    }
  }

  #startPayload(): void {
    const length = this.#header.bytes.readUInt32BE(4);
    if (length > this.#maxPayloadBytes) {
      throw new MuxFrameError(this.#header.bytes.readUInt32BE(0), length, this.#maxPayloadBytes);
    }
    this.#payload.reset(length);
    this.#inPayload = true;
  }

  #finish(emit: (frame: MuxFrame) => void): void {
    this.#inPayload = false;
    this.#header.rewind();
    emit({ connectionId: this.#header.bytes.readUInt32BE(0), payload: this.#payload.bytes });
  }
}
