import { after } from '../timers.ts';
import type { TtrpcRequest } from './codec.ts';
import { StatusCode, TtrpcError } from './status.ts';

/** What a method learns about its call, besides the request message. */
export interface CallInfo {
  /** How long the caller was willing to wait when it sent the request; absent if it did not say. */
  timeoutMs: number | undefined;
  /** Aborts when the caller no longer waits for the answer: deadline passed or connection closed. */
  signal: AbortSignal;
  /** Side information as received, e.g. a `traceparent`. Keys may repeat. */
  metadata: readonly { key?: string; value?: string }[];
}

/** One running call: its deadline and the signal that informs the method of it. */
export class ServerCall implements Disposable {
  readonly service: string;
  readonly method: string;
  readonly info: CallInfo;
  readonly #abort = new AbortController();
  readonly #cancelTimer: () => void;

  /**
   * @param answerBeforeMs how long before the deadline `answer` is called; absent: never
   * @param answer called at most once, with the status to send
   */
  constructor(request: TtrpcRequest, answerBeforeMs: number | undefined, answer: (error: TtrpcError) => void) {
    this.service = request.service ?? '';
    this.method = request.method ?? '';
    const timeoutMs = readTimeoutMs(request.timeoutNano);
    this.info = { timeoutMs, signal: this.#abort.signal, metadata: request.metadata ?? [] };
    this.#cancelTimer = timeoutMs === undefined ? () => undefined : this.#startTimer(timeoutMs, answerBeforeMs, answer);
  }

  abort(reason: Error): void {
    this.#abort.abort(reason);
  }

  [Symbol.dispose](): void {
    this.#cancelTimer();
  }

  #startTimer(timeoutMs: number, answerBeforeMs: number | undefined, answer: (error: TtrpcError) => void): () => void {
    const waitMs = answerBeforeMs === undefined ? timeoutMs : Math.max(timeoutMs - answerBeforeMs, timeoutMs / 2);
    return after(waitMs, () => {
      const text = `${this.method} was not done within ${Math.round(waitMs)} of ${Math.round(timeoutMs)} ms`;
      const error = new TtrpcError(StatusCode.deadlineExceeded, text);
      if (answerBeforeMs !== undefined) answer(error);
      this.abort(error);
    });
  }
}

/** Nanoseconds as received, 0 or absent for "no limit". */
function readTimeoutMs(timeoutNano: number | undefined): number | undefined {
  return timeoutNano === undefined || timeoutNano === 0 ? undefined : Math.max(0, timeoutNano / 1e6);
}
