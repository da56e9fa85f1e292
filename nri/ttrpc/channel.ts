/**
 * A connection that carries ttrpc frames: whole frames out, a stream of bytes in. The multiplexer makes them; a test
 * can make others.
 */
export interface Channel {
  /**
   * Sends one whole ttrpc frame. Returns at once; what the peer does not read yet is kept.
   * @throws ConnectionClosedError
   */
  send(frame: Buffer): void;
  /** Names the one who takes what comes in. To be called once, in the same turn in which the channel was made. */
  receive(receiver: ChannelReceiver): void;
  /** Closes the connection below, with all its channels. */
  close(error?: Error): void;
}

export interface ChannelReceiver {
  /** Bytes in order, cut anywhere. May not throw and may not wait: the socket is read by nobody else. */
  data(chunk: Buffer): void;
  /** Called once. `error` is absent when one of both sides closed in peace. */
  closed(error: Error | undefined): void;
}
