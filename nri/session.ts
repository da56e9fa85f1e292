import type { Duplex } from 'node:stream';
import { ConnectionClosedError, NriError, toError } from './errors.ts';
import { MuxConnection } from './mux/frame.ts';
import { Mux } from './mux/mux.ts';
import type { SessionSettings } from './plugin-options.ts';
import { PluginService } from './plugin-service.ts';
import type { RuntimeInfo } from './runtime-info.ts';
import { after, settledWithin } from './timers.ts';
import { TtrpcClient } from './ttrpc/client.ts';
import type { TtrpcCodec } from './ttrpc/codec.ts';
import { TtrpcServer } from './ttrpc/server.ts';
import { type NriCodec, runtimeService } from './wire.ts';

export interface SessionOptions extends SessionSettings {
  ttrpc: TtrpcCodec;
  nri: NriCodec;
  /** Whether the runtime started this process and handed it the socket. */
  launched: boolean;
  onReady: (runtime: RuntimeInfo) => void;
}

export class Session {
  /**
   * Resolves when the connection has ended: to the error, which is `registration-failed` if the runtime rejected the plugin, or
   * to `undefined` after a clean close. Never rejects.
   */
  readonly closed: Promise<Error | undefined>;
  readonly #mux: Mux;
  readonly #server: TtrpcServer;
  readonly #service: PluginService;

  constructor(socket: Duplex, options: SessionOptions) {
    const { ttrpc, nri, logger, answerBeforeDeadlineMs } = options;
    this.#mux = new Mux(socket);
    this.closed = this.#mux.closed;
    const stopWaiting = warnWhenHeldBack(options);
    const ended = new AbortController();
    this.closed.then((error) => {
      ended.abort(new ConnectionClosedError('the connection to the runtime', error));
      stopWaiting();
    });
    const onReady = (runtime: RuntimeInfo) => {
      stopWaiting();
      if (!ended.signal.aborted) options.onReady(runtime);
    };
    this.#service = new PluginService({ ...options, codec: nri, signal: ended.signal, onReady });
    // The server comes first: a runtime may configure the plugin before it answers the registration.
    this.#server = new TtrpcServer(this.#mux.open(MuxConnection.plugin), this.#service.services, {
      codec: ttrpc,
      logger,
      answerBeforeDeadlineMs,
    });
    const client = new TtrpcClient(this.#mux.open(MuxConnection.runtime), { codec: ttrpc, logger });
    this.#register(client, options);
  }

  /**
   * Closes the connection after running handlers had `handlerTimeoutMs` to answer: the runtime counts an unanswered event as
   * success. The remaining handlers get the same time again to react to their aborted signal.
   */
  async close(handlerTimeoutMs: number): Promise<void> {
    const idle = () => Promise.all([this.#server.idle(handlerTimeoutMs), this.#service.idle()]);
    await settledWithin(idle(), handlerTimeoutMs);
    this.#mux.close();
    await settledWithin(idle(), handlerTimeoutMs);
  }

  /** Waits for handlers that go on after the connection has ended. Never rejects. */
  async idle(): Promise<void> {
    await Promise.all([this.#server.untilIdle(), this.#service.idle()]);
  }

  /**
   * Registers the plugin. Only this call has a time limit: afterwards the runtime may wait while it stops another pod
   * (containerd#14083), and reconnecting would only restart that wait.
   */
  #register(client: TtrpcClient, { name, index, nri, registrationTimeoutMs, logger }: SessionOptions): void {
    const payload = nri.registerPluginRequest.encode({ pluginName: name, pluginIdx: index });
    client.call(runtimeService, 'RegisterPlugin', payload, { timeoutMs: registrationTimeoutMs }).then(
      () => logger.debug({ name, index }, 'registered the NRI plugin'),
      (cause) => {
        const message = `the runtime did not register plugin ${index}-${name}: ${toError(cause).message}`;
        this.#mux.close(new NriError('registration-failed', message, { cause }));
      },
    );
  }
}

/** Warns if the runtime does not send its pods within `syncPatienceMs`. @returns a function that cancels the warning */
function warnWhenHeldBack({ name, index, syncPatienceMs, logger }: SessionOptions): () => void {
  return after(syncPatienceMs, () => {
    const hint =
      'the runtime registers plugins only between pod operations; if this persists, the runtime is stuck and needs a restart';
    const waiting = { plugin: `${index}-${name}`, waitedMs: syncPatienceMs, hint };
    logger.warn(waiting, 'the runtime has not sent Synchronize yet');
  });
}
