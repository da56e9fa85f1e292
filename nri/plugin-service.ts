import { encodeAdjustment } from './adjustment.ts';
import { type Container, parseContainer } from './container.ts';
import { createTrim, type Trim } from './decoded-fields.ts';
import { toError } from './errors.ts';
import { eventMask, eventNames, methodOf, type PodEventName, podEventName, podEventNames } from './events.ts';
import type { CallContext } from './handlers.ts';
import type { ServiceSettings } from './plugin-options.ts';
import { type PodSandbox, parsePodSandbox } from './pod.ts';
import type { MessageCodec } from './proto.ts';
import { defaultRequestTimeoutMs, parseRuntimeInfo, type RuntimeInfo } from './runtime-info.ts';
import { SyncParts, type SyncState } from './sync-parts.ts';
import type { CallInfo, Method, Reply, Services } from './ttrpc/server.ts';
import { StatusCode, TtrpcError } from './ttrpc/status.ts';
import { type NriCodec, pluginService, type WireContainer, type WirePod } from './wire.ts';

/** Limits with a margin: a node with 400 pods and large annotations sent 20 MB. */
const syncLimits = { bytes: 64 * 1024 * 1024, entries: 100_000 };

export interface PluginServiceOptions extends ServiceSettings {
  codec: NriCodec;
  /** Whether the runtime started this process and handed it the socket. */
  launched: boolean;
  /** Aborts when the connection has ended. */
  signal: AbortSignal;
  onReady: (runtime: RuntimeInfo) => void;
}

type ContainerRequest = { pod?: WirePod; container?: WireContainer };

/** The methods that a runtime calls, implemented with the plugin's handlers. Each connection has its own instance. */
export class PluginService {
  readonly services: Services;
  readonly #options: PluginServiceOptions;
  /** Trim of messages that have `pod` and `container` in fields 1 and 2. */
  readonly #trim: Trim;
  readonly #trimEvent: Trim;
  readonly #sync = new SyncParts(syncLimits);
  readonly #afterwards = new Set<Promise<void>>();
  #runtime: RuntimeInfo | undefined;
  #isReady = false;

  constructor(options: PluginServiceOptions) {
    this.#options = options;
    const { codec, decode = {} } = options;
    this.#trim = createTrim(decode, { pod: 1, container: 2 });
    this.#trimEvent = createTrim(decode, { pod: 2, container: 3 });
    const methods = new Map<string, Method>([
      ['Configure', (payload) => this.#configure(payload)],
      ['Synchronize', (payload) => this.#synchronize(payload)],
      ['Shutdown', () => this.#shutdown()],
      ['StateChange', (payload, call) => this.#stateChange(payload, call)],
    ]);
    for (const event of podEventNames) {
      methods.set(methodOf(event), (payload, call) =>
        this.#podEvent(event, decodePayload(codec.podSandboxRequest, this.#trim(payload)).pod, call),
      );
    }
    methods.set('CreateContainer', (payload, call) =>
      this.#createContainer(decodePayload(codec.containerRequest, this.#trim(payload)), call),
    );
    this.services = new Map([[pluginService, methods]]);
  }

  /** Waits for work that continues after its call was answered. Never rejects. */
  async idle(): Promise<void> {
    while (this.#afterwards.size > 0) await Promise.all(this.#afterwards);
  }

  async #configure(payload: Buffer): Promise<Reply> {
    const { codec, handlers, logger, launched, failurePolicy } = this.#options;
    const request = decodePayload(codec.configureRequest, payload);
    const runtime = parseRuntimeInfo(request);
    this.#runtime = runtime;
    logger.debug({ ...runtime }, 'received the NRI configuration');
    try {
      await handlers.configure?.(runtime, request.config ?? '');
    } catch (error) {
      logger.error({ err: toError(error) }, 'configure handler failed');
      throw error;
    }
    const handled = eventNames.filter((name) => handlers[name] !== undefined);
    const answer = { events: eventMask(handled), ...(failurePolicy && { failurePolicy }) };
    const reply = { payload: codec.configureResponse.encode(answer) };
    // A runtime that does not report its time limits does not synchronize a plugin that it launched: the plugin is ready now.
    return launched && !request.requestTimeout ? { ...reply, afterwards: () => this.#ready() } : reply;
  }

  /**
   * Takes one part of the existing pods and containers. The runtime has one time limit for all parts, so only decoding happens
   * before the answer.
   */
  #synchronize(payload: Buffer): Reply {
    const { codec } = this.#options;
    const part = this.#trim(payload);
    this.#sync.reserve(part);
    const state = this.#sync.add(decodePayload(codec.synchronizeRequest, part));
    if (state === undefined) return { payload: codec.synchronizeResponse.encode({ more: true }) };
    return { afterwards: () => this.#synchronized(state) };
  }

  #synchronized(state: SyncState): void {
    const { handlers, logger, signal } = this.#options;
    this.#ready();
    const pods: PodSandbox[] = state.pods.map(parsePodSandbox);
    const containers: Container[] = state.containers.map(parseContainer);
    logger.debug({ pods: pods.length, containers: containers.length }, 'received pods and containers over NRI');
    const work = (async () => handlers.synchronize?.(pods, containers, { signal }))()
      .catch((error) => logger.error({ err: toError(error) }, 'synchronize handler failed'))
      .finally(() => this.#afterwards.delete(work));
    this.#afterwards.add(work);
  }

  #ready(): void {
    if (this.#isReady) return;
    this.#isReady = true;
    // No known runtime synchronizes before it configures, but this must not cause a failure.
    this.#options.onReady(this.#runtime ?? parseRuntimeInfo({}));
  }

  /** Only logs the call: known runtimes close the connection instead. */
  #shutdown(): Reply {
    this.#options.logger.info({}, 'the runtime is shutting down');
    return {};
  }

  #stateChange(payload: Buffer, call: CallInfo): Reply | Promise<Reply> {
    const { event, pod } = decodePayload(this.#options.codec.stateChangeEvent, this.#trimEvent(payload));
    const name = podEventName(event ?? 0);
    return name === undefined ? {} : this.#podEvent(name, pod, call);
  }

  async #podEvent(name: PodEventName, wire: WirePod | undefined, call: CallInfo): Promise<Reply> {
    const { handlers } = this.#options;
    if (handlers[name] === undefined) return {};
    if (wire === undefined) throw new TtrpcError(StatusCode.invalidArgument, `${name} without a pod`);
    return await this.#handle(call, async (context) => {
      await handlers[name]?.(parsePodSandbox(wire), context);
      return {};
    });
  }

  /**
   * Handles `CreateContainer`. In every NRI version this is a method of its own, since the answer carries adjustments. An empty
   * answer requests none.
   */
  async #createContainer({ pod, container }: ContainerRequest, call: CallInfo): Promise<Reply> {
    const { codec, handlers } = this.#options;
    if (handlers.createContainer === undefined) return {};
    if (pod === undefined || container === undefined) {
      throw new TtrpcError(StatusCode.invalidArgument, 'createContainer without a pod or a container');
    }
    return await this.#handle(call, async (context) => {
      // Called as a method: a handler may be on the prototype of a class.
      const answer = await handlers.createContainer?.(parsePodSandbox(pod), parseContainer(container), context);
      // Handlers in JavaScript return `null`, too.
      if (answer === undefined || answer === null) return {};
      return { payload: codec.createContainerResponse.encode(encodeAdjustment(answer)) };
    });
  }

  async #handle({ timeoutMs, signal }: CallInfo, call: (context: CallContext) => Promise<Reply>): Promise<Reply> {
    try {
      return await call({ timeoutMs: timeoutMs ?? this.#runtime?.requestTimeoutMs ?? defaultRequestTimeoutMs, signal });
    } catch (error) {
      throw withoutUnimplemented(error);
    }
  }
}

/** Replaces an "unimplemented" error, which would permanently change how the runtime calls this plugin. */
function withoutUnimplemented(thrown: unknown): unknown {
  if (!(thrown instanceof TtrpcError) || thrown.status !== StatusCode.unimplemented) return thrown;
  return new TtrpcError(StatusCode.unknown, thrown.message, { cause: thrown });
}

function decodePayload<T>(codec: MessageCodec<T>, payload: Buffer): T {
  try {
    return codec.decode(payload);
  } catch (cause) {
    throw new TtrpcError(StatusCode.internal, toError(cause).message, { cause });
  }
}
