import type { Socket } from 'node:net';
import { adoptSocket, dial } from './dial.ts';
import { ConnectionClosedError, toError } from './errors.ts';
import { type PluginOptions, type ResolvedOptions, resolveOptions } from './plugin-options.ts';
import type { RuntimeInfo } from './runtime-info.ts';
import { Session } from './session.ts';
import { backoffMs, onAbort, pause, settledWithin } from './timers.ts';
import { createTtrpcCodec, type TtrpcCodec } from './ttrpc/codec.ts';
import { createNriCodec, type NriCodec } from './wire.ts';

/** Creates a plugin; nothing is opened before `start`. @throws OptionError `bad-option`; NriError `proto-not-loaded` */
export function createPlugin(options: PluginOptions): Plugin {
  const resolved = resolveOptions(options);
  return new Plugin(resolved, createTtrpcCodec(resolved.protoDir), createNriCodec(resolved.protoDir));
}

export class Plugin implements AsyncDisposable {
  readonly #finished = Promise.withResolvers<void>();
  /**
   * Resolves, never rejects, when the plugin makes no further connection: after disposing or, in a process that the runtime
   * started, when the runtime closes the connection.
   */
  readonly finished: Promise<void> = this.#finished.promise;
  readonly #options: ResolvedOptions;
  readonly #ttrpc: TtrpcCodec;
  readonly #nri: NriCodec;
  readonly #stop = new AbortController();
  /** Resolves when the runtime sends events, rejects when it never will. */
  #ready = pendingRuntime();
  #started = false;
  #session: Session | undefined;
  /** Handlers that go on after their connection has ended. */
  readonly #leftovers = new Set<Promise<void>>();
  #runtime: RuntimeInfo | undefined;
  #disposing: Promise<void> | undefined;

  constructor(options: ResolvedOptions, ttrpc: TtrpcCodec, nri: NriCodec) {
    this.#options = options;
    this.#ttrpc = ttrpc;
    this.#nri = nri;
  }

  get connected(): boolean {
    return this.#runtime !== undefined;
  }

  get runtime(): RuntimeInfo | undefined {
    return this.#runtime;
  }

  /**
   * Connects, and reconnects whenever the connection is lost. A second call does nothing.
   * @throws ConnectionClosedError after the plugin was disposed of
   */
  start(): void {
    if (this.#stop.signal.aborted) throw new ConnectionClosedError('the plugin');
    if (this.#started) return;
    this.#started = true;
    const { fd, logger } = this.#options;
    const run = async () => (fd === undefined ? this.#keepConnected() : this.#serve(adoptSocket(fd)));
    run()
      .catch((error) => logger.error({ err: toError(error) }, 'NRI plugin gave up'))
      .then(() => this.#finish());
  }

  /**
   * Waits until the runtime sends events.
   * @throws ConnectionClosedError if the runtime never will, since the plugin was disposed of or its only connection has ended;
   * or the signal's reason
   */
  whenConnected(signal?: AbortSignal): Promise<RuntimeInfo> {
    const { promise: aborted, reject } = Promise.withResolvers<never>();
    const listener = onAbort(signal, () => reject(signal?.reason));
    const ready = Promise.race([aborted, this.#ready.promise]);
    // A dropped promise must not cause an unhandled rejection when the plugin is disposed of.
    ready.catch(() => undefined).finally(() => listener[Symbol.dispose]());
    return ready;
  }

  /** Lets running handlers answer, closes the connection and resolves `finished`. Repeated calls wait for the first one. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#disposing ??= this.#dispose();
    return this.#disposing;
  }

  async #dispose(): Promise<void> {
    this.#stop.abort(new ConnectionClosedError('the plugin'));
    const { disposeTimeoutMs } = this.#options;
    await Promise.all([
      this.#session?.close(disposeTimeoutMs),
      settledWithin(Promise.all(this.#leftovers), disposeTimeoutMs),
    ]);
    if (this.#started) await this.finished;
    else this.#finish();
  }

  #finish(): void {
    this.#ready.reject(new ConnectionClosedError('the plugin'));
    this.#finished.resolve();
  }

  /** Connects again after each loss, with a delay. The runtime recreates its socket when it restarts. */
  async #keepConnected(): Promise<void> {
    const { socketPath, backoff } = this.#options;
    const { signal } = this.#stop;
    let dials = 0;
    let connections = 0;
    let reported: string | undefined;
    while (!signal.aborted) {
      try {
        const socket = await dial(socketPath, signal);
        dials = 0;
        reported = undefined;
        if (await this.#serve(socket)) connections = 0;
        await pause(backoffMs(connections++, backoff), signal);
      } catch (error) {
        reported = this.#reportDialError(error, reported);
        await pause(backoffMs(dials++, { ...backoff, maxMs: backoff.dialMaxMs }), signal);
      }
    }
  }

  /** Warns once for each kind of failure and logs repeated ones at level debug. */
  #reportDialError(error: unknown, reported: string | undefined): string | undefined {
    if (this.#stop.signal.aborted) return reported;
    const { message } = toError(error);
    const level = message === reported ? 'debug' : 'warn';
    this.#options.logger[level]({ err: error, socket: this.#options.socketPath }, 'cannot connect to the runtime');
    return message;
  }

  /**
   * Serves one connection until it ends; never rejects. Resolves to `true` if the connection lasted long enough to reset the
   * backoff.
   */
  async #serve(socket: Socket): Promise<boolean> {
    const { logger, handlers } = this.#options;
    let connectedAtMs: number | undefined;
    const session = new Session(socket, {
      ...this.#options,
      ttrpc: this.#ttrpc,
      nri: this.#nri,
      launched: this.#options.fd !== undefined,
      onReady: (runtime) => {
        connectedAtMs = performance.now();
        this.#connect(runtime);
      },
    });
    this.#session = session;
    const error = await session.closed;
    this.#session = undefined;
    const leftover = session.idle().finally(() => this.#leftovers.delete(leftover));
    this.#leftovers.add(leftover);
    if (this.#runtime !== undefined) this.#ready = pendingRuntime();
    this.#runtime = undefined;
    if (!this.#stop.signal.aborted) {
      logger.warn({ err: error, registered: connectedAtMs !== undefined }, 'lost the connection to the runtime');
    }
    if (connectedAtMs === undefined) return false;
    this.#notify('disconnected', () => handlers.disconnected?.(error));
    return performance.now() - connectedAtMs >= this.#options.backoff.stableAfterMs;
  }

  #connect(runtime: RuntimeInfo): void {
    const { logger, handlers, name, index } = this.#options;
    this.#runtime = runtime;
    logger.info({ plugin: `${index}-${name}`, runtime: runtime.name, version: runtime.version }, 'connected over NRI');
    this.#ready.resolve(runtime);
    this.#notify('connected', () => handlers.connected?.(runtime));
  }

  /** Calls a handler that returns nothing, and logs its errors. Awaits a promise, although the type names none. */
  #notify(handler: string, call: () => unknown): void {
    const log = (error: unknown) => this.#options.logger.error({ err: toError(error), handler }, 'handler failed');
    try {
      Promise.resolve(call()).catch(log);
    } catch (error) {
      log(error);
    }
  }
}

function pendingRuntime(): PromiseWithResolvers<RuntimeInfo> {
  const ready = Promise.withResolvers<RuntimeInfo>();
  ready.promise.catch(() => undefined);
  return ready;
}
