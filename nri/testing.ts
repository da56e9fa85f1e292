import { once } from 'node:events';
import { unlink } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Container } from './container.ts';
import type { PodEventName } from './events.ts';
import type { ContainerAdjustment } from './handlers.ts';
import { type Logger, silentLogger } from './logger.ts';
import type { PodSandbox } from './pod.ts';
import { defaultRegistrationTimeoutMs, defaultRequestTimeoutMs } from './runtime-info.ts';
import { FakePlugin, type FakeRuntimeFacts } from './testing/fake-plugin.ts';
import { createTtrpcCodec } from './ttrpc/codec.ts';
import { createNriCodec } from './wire.ts';

export { FakePlugin } from './testing/fake-plugin.ts';
export { GoReadError, goChannel, goReadBufferBytes, goReadQueueFrames } from './testing/go-channel.ts';

export interface FakeRuntimeOptions {
  /** Path of the socket to listen on; absent if plugins are only handed over with `launch`. */
  socketPath?: string;
  /** Name of the runtime. Default `containerd`; any other name behaves as CRI-O where the two differ. */
  name?: string;
  /** Version of the runtime. Default `v2.1.9`. */
  version?: string;
  /**
   * NRI version. From `v0.12.0` on the runtime calls a method for each event and reports this version; from `v0.12.4` on it
   * honors failure policies. `undefined`: a version before v0.7, which does not report its time limits. Default: v0.8.0,
   * released in 2024.
   */
  nriVersion?: string | undefined;
  /** Time limit for the registration, ms. Default 5000. */
  registrationTimeoutMs?: number;
  /** Time limit for the answer to an event, ms. Default 2000. */
  requestTimeoutMs?: number;
  /**
   * Whether to configure plugins before their registration is answered, not after. Go's implementation may do either. Default
   * false.
   */
  configureFirst?: boolean;
  /** Maximum size of one message with existing pods and containers, bytes. Default 4 MiB, as in Go. */
  maxSyncBytes?: number;
  pods?: PodInput[];
  containers?: Partial<Container>[];
  logger?: Logger;
  protoDir?: string;
}

export type PodInput = Partial<PodSandbox> & { id: string };

/**
 * A runtime for tests of plugins: it speaks the real protocol over a real socket, with the limits and habits of the Go code
 * in containerd and CRI-O. It serves one registration at a time; one lock serializes all events.
 */
export class FakeRuntime implements AsyncDisposable {
  /** The existing pods, which are sent to a plugin when it connects. */
  readonly pods = new Map<string, PodInput>();
  readonly #options: FakeRuntimeOptions;
  readonly #facts: FakeRuntimeFacts;
  readonly #connections = new Set<FakePlugin>();
  readonly #sockets = new Set<Socket>();
  readonly #waiters = new Set<() => void>();
  /** IDs of the sandboxes announced since the last start: containerd reports no further events of other sandboxes. */
  readonly #announced = new Set<string>();
  readonly #stopped = new Set<string>();
  #plugins: FakePlugin[] = [];
  #registrations: Promise<void> = Promise.resolve();
  #events: Promise<void> = Promise.resolve();
  #syncBlockers = 0;
  #server: Server | undefined;
  #accepted = 0;

  constructor(options: FakeRuntimeOptions) {
    this.#options = options;
    for (const pod of options.pods ?? []) this.pods.set(pod.id, pod);
    this.#facts = {
      name: 'containerd',
      version: 'v2.1.9',
      nriVersion: 'v0.8.0',
      config: '',
      logger: silentLogger,
      registrationTimeoutMs: defaultRegistrationTimeoutMs,
      requestTimeoutMs: defaultRequestTimeoutMs,
      configureFirst: false,
      maxSyncBytes: 4 * 1024 * 1024,
      ...options,
      ttrpc: createTtrpcCodec(options.protoDir),
      nri: createNriCodec(options.protoDir),
    };
  }

  /** The plugins that get events, in calling order. */
  get plugins(): readonly FakePlugin[] {
    return this.#plugins;
  }

  get accepted(): number {
    return this.#accepted;
  }

  /** Starts to listen, after removing a stale socket at the path. */
  async start(): Promise<void> {
    const { socketPath } = this.#options;
    if (socketPath === undefined || this.#server !== undefined) return;
    await unlink(socketPath).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    this.#server = createServer((socket) => this.#accept(socket)).listen(socketPath);
    await once(this.#server, 'listening');
  }

  /** Closes all connections without notice, as a killed runtime does. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const plugin of this.#connections) plugin.close();
    await Promise.all([...this.#connections].map(({ closed }) => closed));
    // The others are still waiting for their turn and have not been served.
    for (const socket of this.#sockets) socket.destroy();
    this.#connections.clear();
    this.#plugins = [];
    this.#registrations = Promise.resolve();
    this.#announced.clear();
    this.#stopped.clear();
    if (server !== undefined) await new Promise((resolve) => server.close(resolve));
  }

  /**
   * Stops and starts again, with a new socket at the same path. Pods stay, but the runtime forgets which of them it announced.
   */
  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Serves a plugin that this runtime started itself, over a socket handed to it.
   * @param config its configuration from the runtime's files
   */
  launch(socket: Duplex, { config = '' }: { config?: string } = {}): void {
    // A runtime that does not report its NRI version is from before v0.7, when launched plugins were not synchronized.
    this.#serve(socket, { ...this.#facts, config }, this.#facts.nriVersion !== undefined);
  }

  async waitForPlugin(name: string): Promise<FakePlugin> {
    for (;;) {
      const found = this.#plugins.find((plugin) => plugin.name === name);
      if (found !== undefined) return found;
      await this.#change();
    }
  }

  async waitForLoss(name: string): Promise<void> {
    while (this.#plugins.some((plugin) => plugin.name === name)) await this.#change();
  }

  /** Holds back the synchronization of plugins until disposed of, as a runtime does while it works on a pod. */
  blockSync(): Disposable {
    this.#syncBlockers += 1;
    const blocker = new DisposableStack();
    blocker.defer(() => {
      this.#syncBlockers -= 1;
      this.#changed();
    });
    return blocker;
  }

  /**
   * Announces a new sandbox to the plugins, one by one.
   * @throws TtrpcError the first refusal; later plugins are not asked
   */
  runPodSandbox(pod: PodInput): Promise<void> {
    return this.#event('runPodSandbox', pod, () => {
      this.pods.set(pod.id, pod);
      this.#announced.add(pod.id);
      return true;
    });
  }

  /** Announces the stop of a sandbox to the plugins, one by one. @throws TtrpcError the first refusal */
  stopPodSandbox(pod: PodInput): Promise<void> {
    return this.#event('stopPodSandbox', pod, () => {
      const repeated = this.#stopped.has(pod.id);
      this.#stopped.add(pod.id);
      return !this.#isContainerd() || (this.#announced.has(pod.id) && !repeated);
    });
  }

  /** Announces the removal of a sandbox to the plugins, one by one. @throws TtrpcError the first refusal */
  removePodSandbox(pod: PodInput): Promise<void> {
    return this.#event('removePodSandbox', pod, () => {
      this.pods.delete(pod.id);
      this.#stopped.delete(pod.id);
      return this.#announced.delete(pod.id) || !this.#isContainerd();
    });
  }

  /**
   * Asks the plugins about a container of a pod, one by one.
   * @returns the adjustments that the plugins request; none is applied
   * @throws TtrpcError the first refusal
   */
  async createContainer(pod: PodInput, container: Partial<Container>): Promise<ContainerAdjustment[]> {
    const adjustments: ContainerAdjustment[] = [];
    await this.#inTurn(async () => {
      for (const plugin of [...this.#plugins]) adjustments.push(...(await plugin.createContainer(pod, container)));
    });
    return adjustments;
  }

  #isContainerd(): boolean {
    return this.#facts.name === 'containerd';
  }

  #event(event: PodEventName, pod: PodInput, admit: () => boolean): Promise<void> {
    return this.#inTurn(async () => {
      if (!admit()) return;
      for (const plugin of [...this.#plugins]) await plugin.notify(event, pod);
    });
  }

  #inTurn(deliver: () => Promise<void>): Promise<void> {
    const delivered = this.#events.then(deliver);
    this.#events = delivered.catch(() => undefined);
    return delivered;
  }

  #accept(socket: Socket): void {
    this.#accepted += 1;
    // Paused until its turn, like a connection that Go has not accepted yet.
    socket.on('error', () => undefined);
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    this.#registrations = this.#registrations.then(async () => {
      if (this.#sockets.has(socket)) await this.#serve(socket, this.#facts);
    });
  }

  async #serve(socket: Duplex, facts: FakeRuntimeFacts, synchronizes = true): Promise<void> {
    const plugin = new FakePlugin(socket, facts);
    this.#connections.add(plugin);
    plugin.closed.then(() => this.#drop(plugin));
    try {
      await plugin.start();
      if (synchronizes) await this.#synchronize(plugin);
    } catch (err) {
      facts.logger.error({ err }, 'failed to start external plugin');
      return;
    }
    if (!this.#connections.has(plugin)) return;
    this.#plugins = [...this.#plugins, plugin].sort((a, b) => a.index.localeCompare(b.index));
    this.#changed();
  }

  async #synchronize(plugin: FakePlugin): Promise<void> {
    while (this.#syncBlockers > 0 && this.#connections.has(plugin)) await this.#change();
    await plugin.synchronize([...this.pods.values()], this.#options.containers ?? []);
  }

  #drop(plugin: FakePlugin): void {
    this.#connections.delete(plugin);
    this.#plugins = this.#plugins.filter((other) => other !== plugin);
    this.#changed();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiters.add(resolve));
  }

  #changed(): void {
    for (const waiter of this.#waiters) waiter();
    this.#waiters.clear();
  }
}

export async function startFakeRuntime(options: FakeRuntimeOptions): Promise<FakeRuntime> {
  const runtime = new FakeRuntime(options);
  await runtime.start();
  return runtime;
}
