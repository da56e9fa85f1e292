import { parseAddress } from '../../instance/parse-flags.ts';
import { type Clock, repeat } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import { errnoCode, explain, NetdraError } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import { watchEventLoop } from './event-loop-watch.ts';
import { type HttpServer, serveHttp } from './http-server.ts';
import type { InstanceToken } from './instance-token.ts';
import { Metrics, type MetricsOptions } from './metrics.ts';
import { Readiness } from './readiness.ts';
import type { SuccessorReport } from './successor-report.ts';
import { type TlsChange, TlsFiles, type TlsPair } from './tls-files.ts';

export interface OperationsOptions extends MetricsOptions {
  /** Address for metrics and probes, `HOST:PORT`; absent: nothing is served. */
  address?: string;
  /** Directory with `tls.crt` and `tls.key`, whose content may change; absent: no TLS. */
  tlsDir?: string;
  /**
   * Whether the address may be held by the instance that this one replaces. That instance releases the address when it ends.
   */
  waitForAddress?: boolean;
  /** Token that distinguishes the replaced instance from another program that holds the address. */
  token?: InstanceToken;
  /** Name of the revision of this instance's pod. */
  revision?: string;
  /** Report to which an instance that waits for the address writes its readiness. */
  successor?: SuccessorReport;
  clock: Clock;
  logger: Logger;
}

/**
 * Number of attempts to get the address between checks of its holder: another program can take the address in the moment
 * between two instances.
 */
const attemptsPerCheck = 20;
/** Number of attempts to get the address between readiness reports to the instance that has it. */
const attemptsPerReport = 8;
/** Interval between reads of the certificate, ms. The kubelet renews the files of a Secret about once a minute. */
const tlsRereadMs = 10_000;

/** Metrics, readiness and stall reports of the running driver. */
export class Operations implements AsyncDisposable {
  readonly metrics: Metrics;
  readonly readiness = new Readiness();
  readonly #loopWatch: Disposable;
  readonly #ended = new AbortController();
  #server: HttpServer | undefined;
  #tls: TlsPair | undefined;
  #following: Promise<void> | undefined;
  #takeover: Promise<void> | undefined;
  #longestStallMs = 0;

  private constructor(options: OperationsOptions) {
    this.metrics = new Metrics(options);
    this.#loopWatch = watchEventLoop(options.logger, (stallMs) => {
      this.#longestStallMs = Math.max(this.#longestStallMs, stallMs);
      if (stallMs > 0) this.metrics.own.stalls.inc();
      this.metrics.own.longestStallSeconds.set(this.#longestStallMs / 1_000);
    });
  }

  /** Starts serving metrics and probes. @throws NetdraError `address-invalid`, `address-unavailable`, `tls-invalid` */
  static async start(options: OperationsOptions): Promise<Operations> {
    const operations = new Operations(options);
    if (options.address === undefined) return operations;
    try {
      if (options.tlsDir !== undefined) operations.#followTls(new TlsFiles(options.tlsDir), options);
      await operations.#serve(options.address, options);
      return operations;
    } catch (error) {
      if (options.waitForAddress && isTaken(error)) {
        await checkHolder(options.address, options).catch(async (foreign: unknown) => {
          await operations[Symbol.asyncDispose]();
          throw foreign;
        });
        options.logger.info(
          { address: options.address },
          'waiting until the other instance stops serving metrics and probes',
        );
        operations.#takeover = operations.#serveLater(options.address, options);
        return operations;
      }
      await operations[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #serve(address: string, { clock, logger, token, revision, successor }: OperationsOptions): Promise<void> {
    const { metrics, readiness } = this;
    const parts = defined({ token, revision, successor, tls: this.#tls });
    this.#server = await serveHttp({ metrics, readiness, address, clock, ...parts });
    logger.info({ address, port: this.#server.port, tls: this.#tls !== undefined }, 'serving metrics and probes');
  }

  /** Uses the certificate, and every later one. @throws NetdraError `tls-invalid` if the files are invalid at the start */
  #followTls(files: TlsFiles, { clock, logger }: OperationsOptions): void {
    const use = (change: TlsChange | undefined) => {
      if (change === undefined) return;
      this.#tls = { cert: change.cert, key: change.key };
      this.#server?.setTls(this.#tls);
      const [notBeforeMs, notAfterMs] = [change.notBefore.getTime(), change.notAfter.getTime()];
      this.metrics.own.certificateExpiry.set(notAfterMs / 1_000);
      this.metrics.own.certificateLifetime.set((notAfterMs - notBeforeMs) / 1_000);
      const isExpired = notAfterMs < Date.now();
      const message = isExpired
        ? 'certificate for metrics and probes has expired'
        : 'loaded certificate for metrics and probes';
      logger[isExpired ? 'warn' : 'info']({ notAfter: change.notAfter.toISOString() }, message);
    };
    use(files.read());
    let fault: string | undefined;
    this.#following = repeat(clock, tlsRereadMs, this.#ended.signal, () => {
      try {
        use(files.read());
        fault = undefined;
      } catch (error) {
        const now = explain(error);
        if (now !== fault)
          logger.error({ err: error }, 'rejected certificate for metrics and probes; the last valid one stays in use');
        fault = now;
      }
    });
  }

  async #serveLater(address: string, options: OperationsOptions): Promise<void> {
    const { signal } = this.#ended;
    using _ = { [Symbol.dispose]: () => reported(options, (successor) => successor.remove()) };
    for (let attempt = 0; !signal.aborted; attempt++) {
      if (attempt % attemptsPerReport === 0)
        reported(options, (successor) => successor.write(this.readiness.answer(), options.revision));
      // A short pause, since no instance answers probes in between.
      await options.clock.sleep(250, signal).catch(() => undefined);
      if (signal.aborted) return;
      try {
        return await this.#serve(address, options);
      } catch (error) {
        if (!isTaken(error))
          return options.logger.error({ err: error }, `cannot serve metrics and probes: ${explain(error)}`);
        // Not caught on purpose: the driver must not run while another program answers its probes.
        if (attempt % attemptsPerCheck === 0 && !signal.aborted) await checkHolder(address, options);
      }
    }
  }

  /** Records whether the driver is registered with the kubelet, or connected to the runtime. @param failure reason if not */
  setConnected(peer: 'kubelet' | 'nri', failure?: string): void {
    const { connected, connects } = this.metrics.own;
    connected.set({ peer }, Number(failure === undefined));
    if (failure === undefined) connects.inc({ peer });
    this.readiness.set(peer, failure === undefined ? { ok: true } : { ok: false, reason: failure });
  }

  /** Records whether the API server has the wanted slices. @param failure reason if not */
  setPublished(failure?: string): void {
    this.metrics.own.published.set(Number(failure === undefined));
    this.readiness.set('slices', failure === undefined ? { ok: true } : { ok: false, reason: failure });
  }

  async [Symbol.asyncDispose]() {
    this.#loopWatch[Symbol.dispose]();
    this.#ended.abort();
    await this.#takeover?.catch(() => undefined);
    await this.#following;
    await this.#server?.[Symbol.asyncDispose]();
  }
}

/** Changes the report for the instance that has the address. A failure is only logged: the driver works without the report. */
function reported({ successor, logger }: OperationsOptions, change: (successor: SuccessorReport) => void): void {
  try {
    if (successor !== undefined) change(successor);
  } catch (error) {
    const effect = 'until that instance ends, the kubelet may have a wrong readiness of this pod';
    logger.warn({ err: error }, `cannot report readiness to the instance that this one replaces: ${effect}`);
  }
}

/** Checks which program has the address. @throws NetdraError `address-unavailable` if it is a foreign program */
async function checkHolder(address: string, { token }: OperationsOptions): Promise<void> {
  if (token === undefined || (await token.whoHas(parseAddress(address))) !== 'foreign') return;
  const message = `another program listens on ${address}, where metrics and probes are served`;
  const hint = 'choose another port: http.port in the chart, --http-address of the driver';
  throw new NetdraError('address-unavailable', message, { hint });
}

function isTaken(error: unknown): boolean {
  return error instanceof Error && errnoCode(error.cause) === 'EADDRINUSE';
}
