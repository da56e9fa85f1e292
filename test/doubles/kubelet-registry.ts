import { type FSWatcher, watch } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { loadProto } from '../../src/lib/proto.ts';
import { type DraServiceName, formatRpcError, isDraServiceName, UnixGrpcClient } from './kubelet-dra-client.ts';

/** A plugin's information about itself. */
export interface PluginInfo {
  type: string;
  name: string;
  endpoint: string;
  supportedVersions: string[];
}

/** An accepted driver. */
export interface Registration {
  /** The registration socket. */
  socketPath: string;
  driver: string;
  endpoint: string;
  service: DraServiceName;
  /** All services in the plugin's registration. */
  services: readonly string[];
}

/** One attempt to register a socket, for inspection by tests. */
export interface RegistrationAttempt {
  socketPath: string;
  info?: PluginInfo;
  /** Absent: registered. */
  error?: string;
  /** The plugin's answer to being refused, if that was an error. */
  notifyError?: string;
}

export interface RegistryTimes {
  /** Pause before a failed registration is retried; doubles each time. */
  retryMs?: number;
}

/** The reason to refuse a well-formed plugin; `undefined`: it is accepted. */
export type Refusal = (info: PluginInfo) => string | undefined;

export interface RegistryOptions extends RegistryTimes {
  /** Directory with the registration sockets. Sub-directories are not searched. */
  dir: string;
  refuse?: Refusal;
  /** Accepts the plugin. @throws to refuse it */
  onRegister: (registration: Registration) => void;
  /** The socket is gone. */
  onDeregister: (registration: Registration) => void;
  onAttempt: (attempt: RegistrationAttempt) => void;
}

interface WatchedSocket {
  inode: number;
  registration?: Registration;
  retry?: NodeJS.Timeout;
  retryMs: number;
}

/**
 * Watches the kubelet's plugin registry: registers each socket that appears, forgets those that vanish, and starts
 * over when a socket is replaced by another one of the same name. Names with a leading dot are ignored.
 */
export class PluginRegistry implements Disposable {
  readonly #options: RegistryOptions;
  readonly #sockets = new Map<string, WatchedSocket>();
  #watcher: FSWatcher | undefined;
  #scanning: Promise<void> = Promise.resolve();
  #isClosed = false;

  constructor(options: RegistryOptions) {
    this.#options = options;
  }

  /** @throws if the directory does not exist */
  async start(): Promise<void> {
    this.#watcher = watch(this.#options.dir, () => this.#requestScan());
    await this.#requestScan();
  }

  /** Forgets everything without notifying plugins, like a kubelet that ends. */
  [Symbol.dispose](): void {
    this.#isClosed = true;
    this.#watcher?.close();
    for (const { retry } of this.#sockets.values()) clearTimeout(retry);
    this.#sockets.clear();
  }

  #requestScan(): Promise<void> {
    this.#scanning = this.#scanning.then(() => this.#scan());
    return this.#scanning;
  }

  /** Compares the directory with the known sockets. */
  async #scan(): Promise<void> {
    if (this.#isClosed) return;
    const found = await this.#listSockets();
    for (const [path, socket] of this.#sockets) if (found.get(path) !== socket.inode) this.#forget(path, socket);
    for (const [path, inode] of found) {
      if (this.#isClosed || this.#sockets.has(path)) continue;
      const socket: WatchedSocket = { inode, retryMs: this.#options.retryMs ?? 500 };
      this.#sockets.set(path, socket);
      void this.#register(path, socket);
    }
  }

  async #listSockets(): Promise<Map<string, number>> {
    const found = new Map<string, number>();
    for (const name of await readdir(this.#options.dir).catch(() => [])) {
      const path = join(this.#options.dir, name);
      const stats = name.startsWith('.') ? undefined : await stat(path).catch(() => undefined);
      if (stats?.isSocket() === true) found.set(path, stats.ino);
    }
    return found;
  }

  #forget(path: string, socket: WatchedSocket): void {
    clearTimeout(socket.retry);
    this.#sockets.delete(path);
    if (socket.registration !== undefined) this.#options.onDeregister(socket.registration);
  }

  async #register(path: string, socket: WatchedSocket): Promise<void> {
    const attempt: RegistrationAttempt = { socketPath: path };
    try {
      await this.#shakeHands(path, socket, attempt);
    } catch (error) {
      attempt.error = error instanceof Error ? error.message : String(error);
      if (!this.#isClosed && this.#sockets.get(path) === socket) {
        socket.retry = setTimeout(() => void this.#register(path, socket), socket.retryMs);
        socket.retryMs *= 2;
      }
    }
    if (!this.#isClosed) this.#options.onAttempt(attempt);
  }

  async #shakeHands(path: string, socket: WatchedSocket, attempt: RegistrationAttempt): Promise<void> {
    // The real kubelet dials the bare path, so that its HTTP/2 `:authority` is the percent-encoded path.
    const definition = loadProto('plugin-registration.proto');
    using client = new UnixGrpcClient(path, definition, 'pluginregistration.Registration', encodeURIComponent(path));
    await client.waitForReady(10_000);
    const info = await client.call<PluginInfo>('GetInfo', {}, 1_000).catch((error) => {
      throw new Error(
        `RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket ${path}, err: ${formatRpcError(error)}`,
      );
    });
    attempt.info = info;
    let refusal: string | undefined;
    let registration: Registration | undefined;
    try {
      registration = toRegistration(info, path);
      const reason = this.#options.refuse?.(info);
      if (reason !== undefined) {
        throw new Error(`RegisterPlugin error -- plugin validation failed with err: ${reason}`);
      }
      if (this.#isClosed || this.#sockets.get(path) !== socket) throw new Error('the socket is gone');
      this.#options.onRegister(registration);
      socket.registration = registration;
    } catch (error) {
      refusal = error instanceof Error ? error.message : String(error);
    }
    const status = { pluginRegistered: refusal === undefined, error: refusal ?? '' };
    const notified = client.call('NotifyRegistrationStatus', status, 5_000);
    if (refusal !== undefined) {
      // A plugin may answer a refusal with an error; only the refusal counts.
      await notified.catch((error) => {
        attempt.notifyError = formatRpcError(error);
      });
      throw new Error(refusal);
    }
    await notified.catch((error) => {
      throw new Error(`RegisterPlugin error -- failed to notify plugin at socket ${path}: ${formatRpcError(error)}`);
    });
  }
}

/** @throws Error with the text that the plugin receives */
function toRegistration(info: PluginInfo, socketPath: string): Registration {
  const service = info.supportedVersions.find(isDraServiceName);
  if (info.type !== 'DRAPlugin' || service === undefined) {
    throw new Error(`RegisterPlugin error -- no DRA plugin at socket ${socketPath}: ${JSON.stringify(info)}`);
  }
  return { socketPath, driver: info.name, endpoint: info.endpoint, service, services: info.supportedVersions };
}
