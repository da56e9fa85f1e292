import type { Duplex } from 'node:stream';
import { ConnectionClosedError, NriError, toError } from '../errors.ts';
import { after } from '../timers.ts';
import type { Channel, ChannelReceiver } from '../ttrpc/channel.ts';
import { encodeMuxHeader, MuxFrameDecoder, maxMuxPayloadBytes } from './frame.ts';

/**
 * Bytes of a ttrpc frame that go into the first multiplexer frame. The Go reader takes each multiplexer frame in one read,
 * through a buffer of this size: a longer first frame is lost, and the logical connection with it. The rest is read
 * directly into the message and should be one frame: more than 256 unread frames close the socket.
 */
const firstFrameBytes = 4096;

/** Time to send the last bytes after `close`, ms. */
const lingerMs = 500;

export interface MuxOptions {
  /** Longest payload that is accepted, bytes. Default 16 MiB. */
  maxPayloadBytes?: number;
  /** Limit of unsent data for a peer that does not read, bytes; beyond it the connection is closed. Default 32 MiB. */
  maxUnsentBytes?: number;
}

/**
 * NRI's multiplexer: several logical connections over one stream socket. Opening a connection sends nothing to the peer; frames
 * for connections that are not open are dropped, as in Go. The socket is read without pause.
 */
export class Mux {
  /** Resolves, never rejects, when the socket is closed: to the error, or to `undefined` after a clean close. */
  readonly closed: Promise<Error | undefined>;
  readonly #socket: Duplex;
  readonly #maxUnsentBytes: number;
  readonly #receivers = new Map<number, ChannelReceiver>();
  readonly #resolveClosed: (error: Error | undefined) => void;
  #open = true;

  /**
   * Creates a multiplexer. Open the logical connections in the same tick: data for connections that are not open is dropped.
   */
  constructor(socket: Duplex, options: MuxOptions = {}) {
    const { promise, resolve } = Promise.withResolvers<Error | undefined>();
    this.closed = promise;
    this.#resolveClosed = resolve;
    this.#socket = socket;
    this.#maxUnsentBytes = options.maxUnsentBytes ?? 32 * 1024 * 1024;
    const decoder = new MuxFrameDecoder(options.maxPayloadBytes ?? maxMuxPayloadBytes);
    // The listener stays for good: a socket may report an error even after it was closed.
    socket.on('error', (error) => this.close(error));
    socket.on('end', () => this.close());
    socket.on('close', () => this.close());
    socket.on('data', (chunk: Buffer) => this.#receive(decoder, chunk));
  }

  open(connectionId: number): Channel {
    return {
      send: (frame) => this.#send(connectionId, frame),
      receive: (receiver) => this.#receivers.set(connectionId, receiver),
      close: (error) => this.close(error),
    };
  }

  /** Closes the socket and all logical connections. Without an error, data already queued is still sent. */
  close(error?: Error): void {
    if (!this.#open) return;
    this.#open = false;
    if (error === undefined && !this.#socket.destroyed) this.#flushAndDestroy();
    else this.#socket.destroy();
    for (const receiver of this.#receivers.values()) receiver.closed(error);
    this.#resolveClosed(error);
  }

  #flushAndDestroy(): void {
    const cancel = after(lingerMs, () => this.#socket.destroy());
    this.#socket.once('close', cancel);
    this.#socket.end(() => this.#socket.destroy());
  }

  #receive(decoder: MuxFrameDecoder, chunk: Buffer): void {
    if (!this.#open) return;
    try {
      decoder.push(chunk, ({ connectionId, payload }) => {
        if (this.#open) this.#receivers.get(connectionId)?.data(payload);
      });
    } catch (error) {
      this.close(toError(error));
    }
  }

  #send(connectionId: number, frame: Buffer): void {
    if (!this.#open) throw new ConnectionClosedError('the connection to the runtime');
    this.#socket.cork();
    for (const part of [frame.subarray(0, firstFrameBytes), frame.subarray(firstFrameBytes)]) {
      if (part.length === 0) continue;
      this.#socket.write(encodeMuxHeader(connectionId, part.length));
      this.#socket.write(part);
    }
    this.#socket.uncork();
    if (this.#socket.writableLength > this.#maxUnsentBytes) {
      this.close(new NriError('peer-not-reading', `more than ${this.#maxUnsentBytes} bytes wait to be sent`));
    }
  }
}
