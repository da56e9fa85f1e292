import { ConnectionClosedError, toError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { after } from '../timers.ts';
import type { Channel } from './channel.ts';
import { payloadField, type TtrpcCodec } from './codec.ts';
import {
  encodeTtrpcFrame,
  FrameType,
  type OversizeFrame,
  oversizeError,
  type TtrpcFrame,
  TtrpcFrameDecoder,
} from './frame.ts';
import { CallTimeoutError, StatusCode, TtrpcError, TtrpcProtocolError } from './status.ts';

export interface TtrpcClientOptions {
  codec: TtrpcCodec;
  logger: Logger;
}

export interface CallOptions {
  /** Time limit of the call, which is also sent to the peer. Absent: none. */
  timeoutMs?: number;
}

/** Largest stream ID. IDs are 32 bits wide, a client's are odd, and none may be used twice. */
const lastStreamId = 2 ** 32 - 1;

/** The calling side of a ttrpc connection; unary calls only. */
export class TtrpcClient {
  readonly #channel: Channel;
  readonly #options: TtrpcClientOptions;
  /** Callbacks of unanswered calls, by stream id. */
  readonly #pending = new Map<number, (result: Buffer | Error) => void>();
  #nextStreamId = 1;
  #closed: ConnectionClosedError | undefined;

  constructor(channel: Channel, options: TtrpcClientOptions) {
    this.#channel = channel;
    this.#options = options;
    const decoder = new TtrpcFrameDecoder();
    channel.receive({
      data: (chunk) => decoder.push(chunk, (frame) => this.#receive(frame)),
      closed: (error) => this.#end(error),
    });
  }

  /**
   * Calls a method.
   * @param service full name, e.g. `nri.pkg.api.v1alpha1.Runtime`
   * @param payload the encoded request message
   * @returns the encoded response message; of length 0 if it is empty
   * @throws TtrpcError the peer's status, or `resourceExhausted` if request or response is too long
   * @throws CallTimeoutError after `timeoutMs`; an answer that comes later is dropped
   * @throws ConnectionClosedError
   */
  call(service: string, method: string, payload: Uint8Array, { timeoutMs }: CallOptions = {}): Promise<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    // A caller that drops this promise learns of the closed connection anyway.
    promise.catch(() => undefined);
    try {
      if (this.#closed !== undefined) throw this.#closed;
      const frame = this.#encode(service, method, payload, timeoutMs);
      const streamId = frame.readUInt32BE(4);
      const onTimeout = () => this.#settle(streamId, new CallTimeoutError(`${service}/${method}`, timeoutMs ?? 0));
      const cancel = timeoutMs === undefined ? () => undefined : after(timeoutMs, onTimeout);
      this.#pending.set(streamId, (result) => {
        cancel();
        if (result instanceof Error) reject(result);
        else resolve(result);
      });
      this.#channel.send(frame);
    } catch (error) {
      reject(toError(error));
    }
    return promise;
  }

  #encode(service: string, method: string, payload: Uint8Array, timeoutMs: number | undefined): Buffer {
    if (this.#nextStreamId > lastStreamId) {
      throw new TtrpcError(StatusCode.resourceExhausted, 'all stream ids of this connection are used up');
    }
    const data = this.#options.codec.request.encode({
      service,
      method,
      ...payloadField(payload),
      ...(timeoutMs === undefined ? {} : { timeoutNano: Math.round(timeoutMs * 1e6) }),
    });
    const frame = encodeTtrpcFrame({ streamId: this.#nextStreamId, type: FrameType.request, data });
    this.#nextStreamId += 2;
    return frame;
  }

  #receive(frame: TtrpcFrame | OversizeFrame): void {
    const { streamId } = frame;
    if (!this.#pending.has(streamId)) {
      this.#options.logger.debug({ streamId, type: frame.type }, 'dropped ttrpc frame for an unknown stream');
    } else if ('oversizeBytes' in frame) {
      this.#settle(streamId, oversizeError(frame.oversizeBytes));
    } else if (frame.type !== FrameType.response) {
      this.#settle(streamId, new TtrpcProtocolError(`frame of type ${frame.type} where a response was expected`));
    } else {
      this.#settle(streamId, this.#readResponse(frame.data));
    }
  }

  #readResponse(data: Buffer): Buffer | Error {
    try {
      const { status, payload } = this.#options.codec.response.decode(data);
      const code = status?.code ?? StatusCode.ok;
      if (code !== StatusCode.ok) return new TtrpcError(code, status?.message ?? '');
      return Buffer.from(payload ?? []);
    } catch (cause) {
      return new TtrpcProtocolError('the response cannot be decoded', cause);
    }
  }

  #settle(streamId: number, result: Buffer | Error): void {
    this.#pending.get(streamId)?.(result);
    this.#pending.delete(streamId);
  }

  #end(error: Error | undefined): void {
    this.#closed = new ConnectionClosedError('the ttrpc connection', error);
    for (const streamId of [...this.#pending.keys()]) this.#settle(streamId, this.#closed);
  }
}
