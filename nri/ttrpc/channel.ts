/**
 * A connection that carries ttrpc frames: whole frames out, a stream of bytes in. The multiplexer creates them; a test
 * can create others.
 */
export interface Channel {
  /**
   * Sends one whole ttrpc frame. Returns at once; data that the peer does not read yet is kept.
   * @throws ConnectionClosedError
   */
  send(frame: Buffer): void;
  /** Sets the receiver of incoming data. To be called once, in the same tick in which the channel was created. */
  receive(receiver: ChannelReceiver): void;
  close(error?: Error): void;
}

export interface ChannelReceiver {
  /** Bytes in order, split anywhere. Must neither throw nor wait: nothing else reads the socket. */
  data(chunk: Buffer): void;
  /** Called once. `error` is absent if one of both sides closed cleanly. */
  closed(error: Error | undefined): void;
}
