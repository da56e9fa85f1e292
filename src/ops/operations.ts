import type { Logger } from '../logger.ts';
import { watchEventLoop } from './event-loop-watch.ts';
import { type HttpServer, serveHttp } from './http-server.ts';
import { Metrics, type MetricsOptions } from './metrics.ts';
import { Readiness } from './readiness.ts';

export interface OperationsOptions extends MetricsOptions {
  /** `HOST:PORT` for metrics and probes; absent: nothing is served. */
  address?: string;
  logger: Logger;
}

/** What operators see of the running driver: metrics, readiness, and a word when the event loop stood still. */
export class Operations implements AsyncDisposable {
  readonly metrics: Metrics;
  readonly readiness = new Readiness();
  readonly #loopWatch: Disposable;
  #server: HttpServer | undefined;
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
    const { address, logger } = options;
    if (address === undefined) return operations;
    try {
      operations.#server = await serveHttp({ ...operations, address });
      logger.info({ address, port: operations.#server.port }, 'serving metrics and probes');
      return operations;
    } catch (error) {
      await operations[Symbol.asyncDispose]();
      throw error;
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
    await this.#server?.[Symbol.asyncDispose]();
  }
}
