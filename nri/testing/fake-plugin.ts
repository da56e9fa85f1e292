import type { Duplex } from 'node:stream';
import { removalMark } from '../adjustment.ts';
import { type Container, formatContainer, parseContainer } from '../container.ts';
import { NriError, toError } from '../errors.ts';
import { type EventName, eventBit, methodOf, PodEvent, type PodEventName, SubscribedEvent } from '../events.ts';
import type { ContainerAdjustment } from '../handlers.ts';
import { MuxConnection } from '../mux/frame.ts';
import { Mux } from '../mux/mux.ts';
import type { FailurePolicy } from '../plugin-options.ts';
import { formatPodSandbox, type PodSandbox } from '../pod.ts';
import type { FakeRuntimeOptions } from '../testing.ts';
import { settledWithin } from '../timers.ts';
import { TtrpcClient } from '../ttrpc/client.ts';
import type { TtrpcCodec } from '../ttrpc/codec.ts';
import { maxDataBytes } from '../ttrpc/frame.ts';
import { type Method, type Reply, TtrpcServer } from '../ttrpc/server.ts';
import { CallTimeoutError, StatusCode, TtrpcError } from '../ttrpc/status.ts';
import { type NriCodec, pluginService, runtimeService } from '../wire.ts';
import { goChannel } from './go-channel.ts';

export interface FakeRuntimeFacts
  extends Required<
    Pick<
      FakeRuntimeOptions,
      'name' | 'version' | 'registrationTimeoutMs' | 'requestTimeoutMs' | 'configureFirst' | 'maxSyncBytes' | 'logger'
    >
  > {
  nriVersion: string | undefined;
  config: string;
  ttrpc: TtrpcCodec;
  nri: NriCodec;
}

/** The runtime's end of one plugin's connection, with Go's rules for fatal errors. */
export class FakePlugin {
  name = '';
  index = '';
  events = 0;
  /** Called methods and their results, in order: `RunPodSandbox`, `StateChange(1): 12 method StateChange`. */
  readonly calls: string[] = [];
  readonly closed: Promise<Error | undefined>;
  readonly #runtime: FakeRuntimeFacts;
  readonly #mux: Mux;
  readonly #client: TtrpcClient;
  readonly #registered = Promise.withResolvers<void>();
  readonly #configured = Promise.withResolvers<void>();
  #onlyStateChange: boolean;
  #policy: FailurePolicy = {};

  constructor(socket: Duplex, runtime: FakeRuntimeFacts) {
    this.#runtime = runtime;
    this.#onlyStateChange = !hasMethodPerEvent(runtime.nriVersion);
    // Go waits forever for a plugin that does not read.
    this.#mux = new Mux(socket, { maxUnsentBytes: Number.POSITIVE_INFINITY });
    this.closed = this.#mux.closed;
    const { ttrpc: codec, logger } = runtime;
    // Go's client gives up its connection when a read fails; its server logs it, reads no more and closes nothing.
    const callers = goChannel(this.#mux.open(MuxConnection.plugin), (error) => this.close(error));
    const callees = goChannel(this.#mux.open(MuxConnection.runtime), (err) =>
      logger.error({ err }, 'error receiving message'),
    );
    this.#client = new TtrpcClient(callers, { codec, logger });
    const register: Method = (payload) => this.#register(payload);
    new TtrpcServer(callees, new Map([[runtimeService, new Map([['RegisterPlugin', register]])]]), { codec, logger });
    this.#registered.promise.catch(() => undefined);
    this.closed.then((error) => this.#registered.reject(error ?? new NriError('plugin-gone', 'plugin closed')));
  }

  close(error?: Error): void {
    this.#mux.close(error);
  }

  /** Waits for the registration and configures the plugin. A plugin that fails here is closed. */
  async start(): Promise<void> {
    const { registrationTimeoutMs } = this.#runtime;
    try {
      if (!(await settledWithin(this.#registered.promise, registrationTimeoutMs))) {
        throw new NriError('time-limit', 'plugin registration timed out');
      }
      await this.#registered.promise;
      await this.#configure();
      this.#configured.resolve();
    } catch (cause) {
      throw this.#refuse('start', cause);
    }
  }

  /** Sends existing pods and containers; all parts share one time limit. A plugin that fails here is disconnected. */
  async synchronize(pods: Partial<PodSandbox>[], containers: Partial<Container>[]): Promise<void> {
    const endsAt = performance.now() + this.#runtime.requestTimeoutMs;
    const codec = this.#runtime.nri.synchronizeResponse;
    try {
      for (const { payload, more } of this.#syncParts(pods, containers)) {
        const answer = await this.call('Synchronize', payload, endsAt - performance.now());
        if (more && codec.decode(answer).more !== true) {
          throw new NriError('no-parts', 'plugin does not handle split sync requests');
        }
      }
    } catch (cause) {
      throw this.#refuse('synchronize', cause);
    }
  }

  #refuse(what: string, cause: unknown): NriError {
    const error = new NriError('plugin-refused', `failed to ${what} plugin: ${toError(cause).message}`, { cause });
    this.close(error);
    return error;
  }

  /**
   * Sends the plugin an event, if it subscribed to it. A plugin that does not answer in time, or whose connection breaks,
   * is disconnected and counts as having agreed, unless its failure policy differs.
   * @throws TtrpcError the plugin's refusal; NriError `event-failed`
   */
  async notify(event: PodEventName, pod: Partial<PodSandbox>): Promise<void> {
    if ((this.events & eventBit(PodEvent[event])) === 0) return;
    await this.#relay(event, this.#callEvent(event, pod));
  }

  /**
   * Announces a container that is about to be created, if the plugin subscribed to this.
   * @returns the adjustment that the plugin asks for, if any
   * @throws as `notify`
   */
  async createContainer(pod: Partial<PodSandbox>, container: Partial<Container>): Promise<ContainerAdjustment[]> {
    if ((this.events & eventBit(SubscribedEvent.createContainer)) === 0) return [];
    const { nri } = this.#runtime;
    const payload = nri.containerRequest.encode({ pod: formatPodSandbox(pod), container: formatContainer(container) });
    const answer = await this.#relay('createContainer', this.call('CreateContainer', payload));
    if (answer === undefined) return [];
    const { adjust } = nri.createContainerResponse.decode(answer);
    if (adjust === undefined) return [];
    const isAdded = (key = '') => !key.startsWith(removalMark);
    const env = (adjust.env ?? []).filter(({ key }) => isAdded(key));
    const added = (adjust.mounts ?? []).filter(({ destination }) => isAdded(destination));
    const { mounts } = parseContainer({ mounts: added });
    const overrides = env.length < (adjust.env?.length ?? 0) || added.length < (adjust.mounts?.length ?? 0);
    const variables = env.map(({ key = '', value = '' }) => ({ name: key, value }));
    return [{ mounts, env: variables, ...(overrides && { overrides }) }];
  }

  /** Calls any method, as a runtime of another version would. */
  async call(method: string, payload: Uint8Array, timeoutMs = this.#runtime.requestTimeoutMs): Promise<Buffer> {
    try {
      const answer = await this.#client.call(pluginService, method, payload, { timeoutMs });
      this.calls.push(method);
      return answer;
    } catch (error) {
      this.calls.push(`${method}: ${error instanceof TtrpcError ? `${error.status} ` : ''}${toError(error).message}`);
      throw error;
    }
  }

  async #relay<T>(event: EventName, call: Promise<T>): Promise<T | undefined> {
    try {
      return await call;
    } catch (cause) {
      if (cause instanceof TtrpcError) throw cause;
      const { failRequest, keepConnected } = this.#policy;
      const message = `plugin ${this.index}-${this.name} failed to handle ${event}: ${toError(cause).message}`;
      this.#runtime.logger.error({ err: cause }, message);
      if (!keepConnected || !(cause instanceof CallTimeoutError)) this.close(toError(cause));
      if (failRequest) throw new NriError('event-failed', message, { cause });
      return undefined;
    }
  }

  #register(payload: Buffer): Reply | Promise<Reply> {
    const { pluginName = '', pluginIdx = '' } = this.#runtime.nri.registerPluginRequest.decode(payload);
    this.name = pluginName;
    this.index = pluginIdx;
    if (pluginName === '' || !/^[0-9]{2}$/.test(pluginIdx)) {
      const error = new NriError('bad-name', `invalid plugin name "${pluginName}" or index "${pluginIdx}"`);
      // The plugin gets the error before its connection is closed.
      setImmediate(() => this.#registered.reject(error));
      throw error;
    }
    if (!this.#runtime.configureFirst) return { afterwards: () => this.#registered.resolve() };
    this.#registered.resolve();
    return this.#configured.promise.then(() => ({}));
  }

  async #configure(): Promise<void> {
    const { nri, name, version, nriVersion, config, registrationTimeoutMs, requestTimeoutMs } = this.#runtime;
    const tellsTimeouts = nriVersion !== undefined;
    const request = nri.configureRequest.encode({
      ...(config === '' ? {} : { config }),
      runtimeName: name,
      runtimeVersion: version,
      ...(tellsTimeouts ? { registrationTimeout: registrationTimeoutMs, requestTimeout: requestTimeoutMs } : {}),
      ...(hasMethodPerEvent(nriVersion) && nriVersion !== undefined ? { nriVersion } : {}),
    });
    const { events = 0, failurePolicy } = nri.configureResponse.decode(await this.call('Configure', request));
    if (knowsFailurePolicy(nriVersion)) this.#policy = failurePolicy ?? {};
    const valid = minorVersion(nriVersion) >= 10 ? 0x3fff : 0x7ff;
    if ((events & ~valid) !== 0) throw new NriError('bad-events', `invalid plugin events: 0x${events.toString(16)}`);
    this.events = events === 0 ? valid : events;
  }

  async #callEvent(event: PodEventName, pod: Partial<PodSandbox>): Promise<void> {
    const { nri } = this.#runtime;
    const wire = formatPodSandbox(pod);
    if (!this.#onlyStateChange) {
      try {
        await this.call(methodOf(event), nri.podSandboxRequest.encode({ pod: wire }));
        return;
      } catch (error) {
        if (!(error instanceof TtrpcError) || error.status !== StatusCode.unimplemented) throw error;
        this.#onlyStateChange = true;
      }
    }
    await this.call('StateChange', nri.stateChangeEvent.encode({ event: PodEvent[event], pod: wire }));
  }

  /** Yields all objects as one part if they fit, otherwise parts of at least 8 objects, sized by the part that did not fit. */
  *#syncParts(
    pods: Partial<PodSandbox>[],
    containers: Partial<Container>[],
  ): Generator<{ payload: Buffer; more: boolean }> {
    const { maxSyncBytes, nri } = this.#runtime;
    const items = [
      ...pods.map((pod) => ({ pods: [formatPodSandbox(pod)] })),
      ...containers.map((container) => ({ containers: [formatContainer(container)] })),
    ];
    let perPart = items.length;
    for (let start = 0; ; ) {
      const part = items.slice(start, start + perPart);
      const more = start + part.length < items.length;
      const payload = nri.synchronizeRequest.encode({
        pods: part.flatMap((item) => ('pods' in item ? item.pods : [])),
        containers: part.flatMap((item) => ('containers' in item ? item.containers : [])),
        ...(more ? { more } : {}),
      });
      if (payload.length > Math.min(maxSyncBytes, maxDataBytes - 1024) && perPart > 8) {
        perPart = Math.max(8, Math.floor(perPart * Math.min(0.9, maxSyncBytes / payload.length)));
        continue;
      }
      yield { payload, more };
      if (!more) return;
      start += part.length;
    }
  }
}

function hasMethodPerEvent(nriVersion: string | undefined): boolean {
  return minorVersion(nriVersion) >= 12;
}

function knowsFailurePolicy(nriVersion: string | undefined): boolean {
  const patch = Number(/^v?0\.12\.(\d+)/.exec(nriVersion ?? '')?.[1] ?? 0);
  return minorVersion(nriVersion) > 12 || patch >= 4;
}

/** Returns the minor number of a version; all versions so far have the major number 0. */
function minorVersion(nriVersion: string | undefined): number {
  return Number(/^v?0\.(\d+)/.exec(nriVersion ?? '')?.[1] ?? 0);
}
