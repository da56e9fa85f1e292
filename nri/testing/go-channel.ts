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
      const push = createGoReader(receiver, onReadError);
      inner.receive({
        data(frame) {
          if (!push(frame)) inner.close(new NriError('queue-full', 'failed to queue payload for reading'));
        },
        closed: (error) => receiver.closed(error),
      });
    },
  };
}

/** @returns takes a frame, unless there is no room in the queue */
function createGoReader(receiver: ChannelReceiver, onReadError: (error: GoReadError) => void) {
  const queue: Buffer[] = [];
  /** Read from the queue but not yet requested; at most the read buffer. */
  let buffered: Buffer = Buffer.alloc(0);
  let isDead = false;

  const hasMessage = () => {
    const waiting = Buffer.concat([buffered, ...queue]);
    return waiting.length >= ttrpcHeaderBytes && waiting.length >= ttrpcHeaderBytes + waiting.readUInt32BE(0);
  };
  /** At most `wanted` bytes, from one frame. */
  const read = (wanted: number): Buffer => {
    if (buffered.length === 0) {
      const direct = wanted >= goReadBufferBytes;
      const frame = queue.shift() ?? Buffer.alloc(0);
      if (frame.length > (direct ? wanted : goReadBufferBytes)) throw new GoReadError();
      if (direct) return frame;
      buffered = frame;
    }
    const part = buffered.subarray(0, wanted);
    buffered = buffered.subarray(wanted);
    return part;
  };
  const readFull = (length: number): Buffer => {
    const parts: Buffer[] = [];
    for (let missing = length; missing > 0; missing -= parts.at(-1)!.length) parts.push(read(missing));
    return Buffer.concat(parts);
  };
  const readMessage = () => {
    const header = readFull(ttrpcHeaderBytes);
    receiver.data(Buffer.concat([header, readFull(header.readUInt32BE(0))]));
  };

  return (frame: Buffer): boolean => {
    if (queue.length >= goReadQueueFrames) return false;
    queue.push(frame);
    try {
      while (!isDead && hasMessage()) readMessage();
    } catch (error) {
      if (!(error instanceof GoReadError)) throw error;
      isDead = true;
      onReadError(error);
    }
    return true;
  };
}
