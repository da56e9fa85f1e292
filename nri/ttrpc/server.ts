import { ConnectionClosedError, NriError, toError } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { after, settledWithin } from '../timers.ts';
import type { Channel } from './channel.ts';
import { payloadField, type TtrpcCodec, type TtrpcRequest, type TtrpcResponse } from './codec.ts';
import {
  encodeTtrpcFrame,
  FrameType,
  maxDataBytes,
  type OversizeFrame,
  oversizeError,
  requestOpensStream,
  type TtrpcFrame,
  TtrpcFrameDecoder,
} from './frame.ts';
import { StatusCode, TtrpcError, toStatus } from './status.ts';

export interface CallInfo {
  /** Caller's time limit when it sent the request; absent if it sent none. */
  timeoutMs: number | undefined;
  /** Aborts when the caller no longer waits for the answer: deadline passed or connection closed. */
  signal: AbortSignal;
  /** Metadata of the call as received, e.g. a `traceparent`. Keys may repeat. */
  metadata: readonly { key?: string; value?: string }[];
}

interface RunningCall {
  service: string;
  method: string;
  timeoutMs: number | undefined;
  abort: AbortController;
}

export interface Reply {
  /** The encoded response message; absent if it is empty. */
  payload?: Uint8Array;
  /** Work that starts once the answer is sent, so that the caller does not wait for it. */
  afterwards?: () => void;
}

/** Answers one call. @param payload the encoded request message, empty if it was absent */
export type Method = (payload: Buffer, call: CallInfo) => Reply | Promise<Reply>;

/** Methods by the service's full name and the method's name. */
export type Services = ReadonlyMap<string, ReadonlyMap<string, Method>>;

export interface TtrpcServerOptions {
  codec: TtrpcCodec;
  logger: Logger;
  /** Number of calls that may wait for their answers; further ones are refused with `resourceExhausted`. Default 64. */
  maxConcurrentCalls?: number;
  /**
   * Number of methods that may still run after their calls were answered at the deadline. One more closes the connection: they
   * ignore their signals and never end. Default 256.
   */
  maxAbandonedCalls?: number;
  /**
   * Time before the caller's deadline at which the server answers `deadlineExceeded` for a running method, ms (at half of the
   * time limit if that is later). Absent: it lets late methods run, as Go does.
   */
  answerBeforeDeadlineMs?: number;
}

/**
 * The answering side of a ttrpc connection; unary calls only. The server keeps reading while methods run: a caller that cannot
 * send its bytes hangs, and in NRI the whole node hangs with it (containerd/ttrpc#174).
 */
export class TtrpcServer {
  readonly #channel: Channel;
  readonly #services: Services;
  readonly #options: TtrpcServerOptions;
  readonly #calls = new Map<number, RunningCall>();
  readonly #atWork = new Set<Promise<void>>();
  #lastStreamId = 0;

  constructor(channel: Channel, services: Services, options: TtrpcServerOptions) {
    this.#channel = channel;
    this.#services = services;
    this.#options = options;
    const decoder = new TtrpcFrameDecoder();
    channel.receive({
      data: (chunk) => decoder.push(chunk, (frame) => this.#receive(frame)),
      closed: (error) => this.#end(error),
    });
  }

  /** Waits until no method runs, for at most `timeoutMs`. Resolves to `false` if methods still run. */
  idle(timeoutMs: number): Promise<boolean> {
    return settledWithin(this.untilIdle(), timeoutMs);
  }

  async untilIdle(): Promise<void> {
    while (this.#atWork.size > 0) await Promise.all(this.#atWork);
  }

  #receive(frame: TtrpcFrame | OversizeFrame): void {
    const { streamId } = frame;
    if ('oversizeBytes' in frame) {
      this.#options.logger.warn({ streamId, bytes: frame.oversizeBytes }, 'refused a ttrpc request that is too long');
      this.#answerError(streamId, oversizeError(frame.oversizeBytes));
    } else if (streamId % 2 !== 1) {
      this.#refuse(streamId, 'StreamID must be odd for client initiated streams');
    } else if (frame.type === FrameType.request) {
      this.#receiveRequest(frame);
    } else if (frame.type === FrameType.data && !this.#calls.has(streamId)) {
      this.#refuse(streamId, 'StreamID is no longer active');
    } else {
      this.#options.logger.debug({ streamId, type: frame.type }, 'ignored ttrpc frame of unsupported type');
    }
  }

  #receiveRequest({ streamId, flags, data }: TtrpcFrame): void {
    if (streamId <= this.#lastStreamId) {
      this.#refuse(streamId, 'StreamID cannot be re-used and must increment');
      return;
    }
    this.#lastStreamId = streamId;
    let request: TtrpcRequest;
    try {
      request = this.#options.codec.request.decode(data);
    } catch {
      this.#refuse(streamId, 'unmarshal request error');
      return;
    }
    const method = this.#find(request, flags);
    if (method instanceof TtrpcError) this.#answerError(streamId, method);
    else this.#start(streamId, method, request);
  }

  #find({ service = '', method = '' }: TtrpcRequest, flags: number): Method | TtrpcError {
    const methods = this.#services.get(service);
    if (methods === undefined) return new TtrpcError(StatusCode.unimplemented, `service ${service}`);
    const found = methods.get(method);
    if (found === undefined) return new TtrpcError(StatusCode.unimplemented, `method ${method}`);
    if ((flags & requestOpensStream) !== 0) {
      return new TtrpcError(StatusCode.unimplemented, `method ${method} takes one message, not a stream`);
    }
    if (this.#calls.size >= (this.#options.maxConcurrentCalls ?? 64)) {
      return new TtrpcError(StatusCode.resourceExhausted, `too many calls: ${this.#calls.size} are at work already`);
    }
    return found;
  }

  #start(streamId: number, method: Method, request: TtrpcRequest): void {
    const { service = '', method: name = '', timeoutNano = 0 } = request;
    // Nanoseconds; 0: no limit.
    const timeoutMs = timeoutNano === 0 ? undefined : Math.max(0, timeoutNano / 1e6);
    const call: RunningCall = { service, method: name, timeoutMs, abort: new AbortController() };
    this.#calls.set(streamId, call);
    const cancelTimer = this.#limitTime(streamId, call);
    const work = this.#run(streamId, method, request, call).finally(() => {
      cancelTimer?.();
      this.#atWork.delete(work);
    });
    this.#atWork.add(work);
  }

  #limitTime(streamId: number, call: RunningCall): (() => void) | undefined {
    const { answerBeforeDeadlineMs, logger } = this.#options;
    const { method, timeoutMs, abort } = call;
    if (timeoutMs === undefined) return undefined;
    const waitMs = Math.max(timeoutMs - (answerBeforeDeadlineMs ?? 0), timeoutMs / 2);
    return after(waitMs, () => {
      const text = `${method} was not done within ${Math.round(waitMs)} of ${Math.round(timeoutMs)} ms`;
      const error = new TtrpcError(StatusCode.deadlineExceeded, text);
      if (answerBeforeDeadlineMs !== undefined) {
        logger.warn({ method, timeoutMs }, 'handler timed out, call rejected');
        this.#answerOnce(streamId, call, error);
      }
      abort.abort(error);
      this.#limitAbandoned(method);
    });
  }

  #limitAbandoned(method: string): void {
    const { logger, maxAbandonedCalls = 256 } = this.#options;
    const abandoned = this.#atWork.size - this.#calls.size;
    if (abandoned <= maxAbandonedCalls) return;
    logger.error({ method, abandoned }, 'closing the connection: handlers do not end after their calls timed out');
    this.#channel.close(new NriError('handlers-hang', `${abandoned} handlers run after their calls timed out`));
  }

  async #run(streamId: number, method: Method, request: TtrpcRequest, call: RunningCall): Promise<void> {
    const info = { timeoutMs: call.timeoutMs, signal: call.abort.signal, metadata: request.metadata ?? [] };
    const answer = await (async () => method(Buffer.from(request.payload ?? []), info))().catch(toError);
    this.#answerOnce(streamId, call, answer);
  }

  /** Sends the answer to a call unless it was answered before: the method and its deadline may both answer. */
  #answerOnce(streamId: number, call: RunningCall, answer: Reply | Error): void {
    const { service, method } = call;
    const { logger } = this.#options;
    const err = answer instanceof Error ? answer : undefined;
    if (!this.#calls.delete(streamId)) {
      logger.warn({ streamId, service, method, err }, 'handler finished after its call timed out');
      return;
    }
    logger.debug({ streamId, service, method, err }, 'answered a ttrpc call');
    if (answer instanceof Error) {
      this.#answerError(streamId, answer);
      return;
    }
    this.#send(streamId, payloadField(answer.payload));
    try {
      answer.afterwards?.();
    } catch (error) {
      logger.error({ err: error, service, method }, 'the work that follows a response failed; the response was sent');
    }
  }

  #refuse(streamId: number, message: string): void {
    this.#answerError(streamId, new TtrpcError(StatusCode.invalidArgument, message));
  }

  #answerError(streamId: number, error: Error): void {
    this.#send(streamId, { status: toStatus(error) });
  }

  #send(streamId: number, response: TtrpcResponse): void {
    let data = this.#options.codec.response.encode(response);
    if (data.length > maxDataBytes) {
      // A Go server closes the connection here; an error response serves the caller better.
      data = this.#options.codec.response.encode({ status: toStatus(oversizeError(data.length)) });
    }
    try {
      this.#channel.send(encodeTtrpcFrame({ streamId, type: FrameType.response, data }));
    } catch (error) {
      this.#options.logger.debug({ err: error, streamId }, 'cannot send a ttrpc response');
    }
  }

  #end(error: Error | undefined): void {
    const reason = new ConnectionClosedError('the ttrpc connection', error);
    for (const { abort } of this.#calls.values()) abort.abort(reason);
    this.#calls.clear();
  }
}
