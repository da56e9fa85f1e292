import { NriError } from '../errors.ts';
import type { Channel, ChannelReceiver } from '../ttrpc/channel.ts';
import { ttrpcHeaderBytes } from '../ttrpc/frame.ts';

/** Frames that Go's multiplexer queues for a logical connection that is not read. One more closes the socket. */
export const goReadQueueFrames = 256;
/** Size of the buffer through which Go's ttrpc reads. */
export const goReadBufferBytes = 4096;

/** `read-buffer-too-small`: Go's ENOMEM. The multiplexer frame that did not fit is lost. */
export class GoReadError extends NriError {
  constructor() {
    super('read-buffer-too-small', 'cannot allocate memory');
  }
}

/**
 * Makes a logical connection behave as if Go read it:
 * - each read takes one whole multiplexer frame, or fails if the frame is longer than the space for it;
 * - the space is a buffer of 4096 bytes, unless at least that much is still missing from a message: then the message itself
 * is the space;
 * - 256 frames may wait to be read. In Go the reader runs concurrently with the code that fills the queue. Here it is as
 * slow as possible: it begins to read once a whole ttrpc message waits, so that a message in too many frames fails every
 * time.
 * @param inner connection whose receiver gets each multiplexer frame separately
 * @param onReadError called when the reader of this connection has failed; Go's client closes, Go's server only logs it
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

/** Creates the queue and its reader. @returns a function that queues a frame, or reports that the queue is full */
function createGoReader(receiver: ChannelReceiver, onReadError: (error: GoReadError) => void) {
  const queue: Buffer[] = [];
  /** Bytes read from the queue but not yet requested; at most the read buffer. */
  let buffered: Buffer = Buffer.alloc(0);
  let isDead = false;

  const hasMessage = () => {
    const waiting = Buffer.concat([buffered, ...queue]);
    return waiting.length >= ttrpcHeaderBytes && waiting.length >= ttrpcHeaderBytes + waiting.readUInt32BE(0);
  };
  /** Reads at most `wanted` bytes, from one frame. */
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
