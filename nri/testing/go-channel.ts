import { NriError } from '../errors.ts';
import type { Channel, ChannelReceiver } from '../ttrpc/channel.ts';
import { ttrpcHeaderBytes } from '../ttrpc/frame.ts';

/** How many frames Go's multiplexer keeps for a logical connection that is not read. One more closes everything. */
export const goReadQueueFrames = 256;
/** The buffer through which Go's ttrpc reads. */
export const goReadBufferBytes = 4096;

/** `read-buffer-too-small`: what Go calls ENOMEM. The multiplexer frame that did not fit is lost. */
export class GoReadError extends NriError {
  constructor() {
    super('read-buffer-too-small', 'cannot allocate memory');
  }
}

/**
 * Makes a logical connection behave as if Go read it:
 *
 * - each read takes one whole multiplexer frame, or fails if the frame is longer than the space for it;
 * - the space is a buffer of 4096 bytes, unless at least that much is still missing from a message: then the message
 *   itself is the space;
 * - 256 frames may wait to be read.
 *
 * In Go the reader runs concurrently with the code that fills the queue. Here it is as slow as it may be: it begins to
 * read when a whole ttrpc message waits, so that a message in too many frames always fails, not just sometimes.
 *
 * @param inner connection whose receiver gets each multiplexer frame separately
 * @param onReadError the reader of this connection has ended; Go's client closes, Go's server only logs it
 * Source: containerd/nri pkg/net/multiplex/mux.go, containerd/ttrpc channel.go, Go's bufio.
 */
export function goChannel(inner: Channel, onReadError: (error: GoReadError) => void): Channel {
  return {
    send: (frame) => inner.send(frame),
    close: (error) => inner.close(error),
    receive(receiver: ChannelReceiver) {
      const reader = new GoReader(receiver, onReadError);
      inner.receive({
        data(frame) {
          if (!reader.push(frame)) inner.close(new NriError('queue-full', 'failed to queue payload for reading'));
        },
        closed: (error) => receiver.closed(error),
      });
    },
  };
}

class GoReader {
  readonly #receiver: ChannelReceiver;
  readonly #onReadError: (error: GoReadError) => void;
  readonly #queue: Buffer[] = [];
  /** Read from the queue but not yet requested; at most the read buffer. */
  #buffered: Buffer = Buffer.alloc(0);
  #dead = false;

  constructor(receiver: ChannelReceiver, onReadError: (error: GoReadError) => void) {
    this.#receiver = receiver;
    this.#onReadError = onReadError;
  }

  /** @returns whether there was room in the queue */
  push(frame: Buffer): boolean {
    if (this.#queue.length >= goReadQueueFrames) return false;
    this.#queue.push(frame);
    try {
      while (!this.#dead && this.#hasMessage()) this.#readMessage();
    } catch (error) {
      if (!(error instanceof GoReadError)) throw error;
      this.#dead = true;
      this.#onReadError(error);
    }
    return true;
  }

  #hasMessage(): boolean {
    const waiting = Buffer.concat([this.#buffered, ...this.#queue]);
    return waiting.length >= ttrpcHeaderBytes && waiting.length >= ttrpcHeaderBytes + waiting.readUInt32BE(0);
  }

  #readMessage(): void {
    const header = this.#readFull(ttrpcHeaderBytes);
    const data = this.#readFull(header.readUInt32BE(0));
    this.#receiver.data(Buffer.concat([header, data]));
  }

  #readFull(length: number): Buffer {
    const parts: Buffer[] = [];
    for (let missing = length; missing > 0; missing -= parts.at(-1)!.length) parts.push(this.#read(missing));
    return Buffer.concat(parts);
  }

  /** At most `wanted` bytes, from one frame. */
  #read(wanted: number): Buffer {
    if (this.#buffered.length === 0) {
      const direct = wanted >= goReadBufferBytes;
      const frame = this.#queue.shift() ?? Buffer.alloc(0);
      if (frame.length > (direct ? wanted : goReadBufferBytes)) throw new GoReadError();
      if (direct) return frame;
      this.#buffered = frame;
    }
    const part = this.#buffered.subarray(0, wanted);
    this.#buffered = this.#buffered.subarray(wanted);
    return part;
  }
}
