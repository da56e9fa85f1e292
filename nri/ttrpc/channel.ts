/**
 * A connection that carries ttrpc frames: whole frames out, a stream of bytes in. The multiplexer creates them; a test
 * can create others.
 */
export interface Channel {
  /**
   * Sends one whole ttrpc frame. Returns at once and queues data that the peer does not read yet.
   * @throws ConnectionClosedError
   */
  send(frame: Buffer): void;
  /** Sets the receiver of incoming data. Call it once, in the tick in which the channel was created. */
  receive(receiver: ChannelReceiver): void;
  close(error?: Error): void;
}

export interface ChannelReceiver {
  /** Takes bytes in order, split anywhere. Must neither throw nor wait: nothing else reads the socket. */
  data(chunk: Buffer): void;
  /** Called once. `error` is absent after a clean close by either side. */
  closed(error: Error | undefined): void;
}
