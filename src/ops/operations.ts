import type { Clock } from '../clock.ts';
import { errnoCode, explain } from '../errors.ts';
import type { Logger } from '../logger.ts';
import { watchEventLoop } from './event-loop-watch.ts';
import { type HttpServer, serveHttp } from './http-server.ts';
import { Metrics, type MetricsOptions } from './metrics.ts';
import { Readiness } from './readiness.ts';

export interface OperationsOptions extends MetricsOptions {
  /** `HOST:PORT` for metrics and probes; absent: nothing is served. */
  address?: string;
  /** Whether the address may be taken: by the instance that this one replaces, which gives it back when it ends. */
  waitForAddress?: boolean;
  clock: Clock;
  logger: Logger;
}

/** What operators see of the running driver: metrics, readiness, and a word when the event loop stood still. */
export class Operations implements AsyncDisposable {
  readonly metrics: Metrics;
  readonly readiness = new Readiness();
  readonly #loopWatch: Disposable;
  readonly #ended = new AbortController();
  #server: HttpServer | undefined;
  #waiting: Promise<void> | undefined;
  #longestStallMs = 0;

  private constructor(options: OperationsOptions) {
    this.metrics = new Metrics(options);
    this.#loopWatch = watchEventLoop(options.logger, (stallMs) => {
      this.#longestStallMs = Math.max(this.#longestStallMs, stallMs);
      this.metrics.stalled(stallMs / 1_000, this.#longestStallMs / 1_000);
    });
  }

  /** @throws NetdraError `address-invalid`, `address-unavailable` */
  static async start(options: OperationsOptions): Promise<Operations> {
    const operations = new Operations(options);
    if (options.address === undefined) return operations;
    try {
      await operations.#serve(options.address, options);
      return operations;
    } catch (error) {
      if (options.waitForAddress && isTaken(error)) {
        options.logger.info({ address: options.address }, 'another instance serves metrics and probes: waiting for it');
        operations.#waiting = operations.#serveLater(options.address, options);
        return operations;
      }
      await operations[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #serve(address: string, { logger }: OperationsOptions): Promise<void> {
    this.#server = await serveHttp({ metrics: this.metrics, readiness: this.readiness, address });
    logger.info({ address, port: this.#server.port }, 'serving metrics and probes');
  }

  async #serveLater(address: string, options: OperationsOptions): Promise<void> {
    const { signal } = this.#ended;
    while (!signal.aborted) {
      // Short: nobody answers the probes in between.
      await options.clock.sleep(250, signal).catch(() => undefined);
      if (signal.aborted) return;
      try {
        return await this.#serve(address, options);
      } catch (error) {
        if (!isTaken(error)) return options.logger.error({ err: error }, `no metrics and probes: ${explain(error)}`);
      }
    }
  }

  /** Whether the kubelet or the runtime knows the driver, and why not. */
  setConnected(peer: 'kubelet' | 'nri', failure?: string): void {
    this.metrics.connected(peer, failure === undefined);
    this.readiness.set(peer, failure === undefined ? { ok: true } : { ok: false, reason: failure });
  }

  /** Whether the API server has the slices as they should be, and why not. */
  setPublished(failure?: string): void {
    this.readiness.set('slices', failure === undefined ? { ok: true } : { ok: false, reason: failure });
  }

  async [Symbol.asyncDispose]() {
    this.#loopWatch[Symbol.dispose]();
    this.#ended.abort();
    await this.#waiting;
    await this.#server?.[Symbol.asyncDispose]();
  }
}

function isTaken(error: unknown): boolean {
  return error instanceof Error && errnoCode(error.cause) === 'EADDRINUSE';
}
