import { NriError } from '../errors.ts';
import { FrameReader } from '../frame-reader.ts';

export const muxHeaderBytes = 8;

/**
 * Longest payload that is accepted, in bytes. No release of NRI writes more: up to v0.6.1 the limit was 16 MiB, since v0.7.0 it
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

/** Returns the 8 bytes before a payload: u32 connection ID, u32 length; big endian. Source: containerd/nri pkg/net/multiplex */
export function encodeMuxHeader(connectionId: number, payloadBytes: number): Buffer {
  const bytes = Buffer.allocUnsafe(muxHeaderBytes);
  bytes.writeUInt32BE(connectionId, 0);
  bytes.writeUInt32BE(payloadBytes, 4);
  return bytes;
}

export class MuxFrameDecoder {
  readonly #reader: FrameReader;
  readonly #maxPayloadBytes: number;

  constructor(maxPayloadBytes = maxMuxPayloadBytes) {
    this.#reader = new FrameReader({ headerBytes: muxHeaderBytes, lengthAt: 4, maxBodyBytes: maxPayloadBytes });
    this.#maxPayloadBytes = maxPayloadBytes;
  }

  /**
   * Decodes the next bytes of the stream.
   * @param emit called for each frame that `chunk` completes, in order
   * @throws NriError `mux-frame-too-long` as soon as a header announces too much; the decoder cannot continue after that
   */
  push(chunk: Uint8Array, emit: (frame: MuxFrame) => void): void {
    this.#reader.push(
      chunk,
      (header, payload) => emit({ connectionId: header.readUInt32BE(0), payload }),
      (header, bytes) => {
        const text = `multiplexer frame of ${bytes} bytes for connection ${header.readUInt32BE(0)}, at most ${this.#maxPayloadBytes} are taken`;
        throw new NriError('mux-frame-too-long', text, { hint: 'check that the peer is an NRI runtime' });
      },
    );
  }
}
