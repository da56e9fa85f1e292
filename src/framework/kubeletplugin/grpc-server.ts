import { randomBytes } from 'node:crypto';
import { lstatSync, rmSync } from 'node:fs';
import { chmod, lstat, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { Server, ServerCredentials, type ServiceDefinition, type UntypedServiceImplementation } from '@grpc/grpc-js';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import { KubeletPluginError } from './errors.ts';
import { clearSocketPath } from './socket-file.ts';

export interface GrpcService {
  definition: ServiceDefinition;
  handlers: object;
}

/** Serves gRPC on a unix socket that only its owner and root can connect to. Disposing cancels all calls. */
export class GrpcServer implements Disposable {
  readonly path: string;
  /** Channelz is off: grpc-js would update its statistics at each call, and nothing reads them. */
  readonly #server = new Server({ 'grpc.enable_channelz': 0 });
  #closed: Promise<void> | undefined;
  /** Address of the server: the hidden name that the socket file had before it was moved to its path. */
  #bound: string | undefined;
  /** Inode of the socket file; `undefined` before the file exists and after its removal. */
  #inode: number | undefined;

  private constructor(path: string) {
    this.path = path;
  }

  /** Starts a server on a socket at a path. @throws KubeletPluginError `socket-unavailable` */
  static async start(path: string, services: GrpcService[]): Promise<GrpcServer> {
    using stack = new DisposableStack();
    const server = stack.use(new GrpcServer(path));
    for (const { definition, handlers } of services) {
      server.#server.addService(definition, handlers as UntypedServiceImplementation);
    }
    try {
      await clearSocketPath(path);
      await server.#listen();
    } catch (cause) {
      if (cause instanceof KubeletPluginError) throw cause;
      throw new KubeletPluginError('socket-unavailable', `cannot listen on ${path}`, { cause, path });
    }
    stack.move();
    return server;
  }

  /** Whether the socket file of this server is at its path. */
  get isInPlace(): boolean {
    try {
      return this.#inode !== undefined && lstatSync(this.path).ino === this.#inode;
    } catch {
      return false;
    }
  }

  /**
   * Listens on a new socket file in place of one that was lost. Running calls continue; clients connect anew.
   * @throws KubeletPluginError `socket-unavailable` if another process listens there; errors of Node.js and grpc-js
   */
  async listenAgain(): Promise<void> {
    if (!this.isInPlace) await clearSocketPath(this.path);
    const earlier = this.#bound;
    await this.#listen();
    if (earlier !== undefined) this.#server.unbind(earlier);
  }

  /**
   * Removes the socket file at once and waits for running calls. @returns `false` if some are still running after `timeoutMs`
   */
  async drain(clock: Clock, timeoutMs: number): Promise<boolean> {
    // Removed while the server still listens, so that a successor's socket is never removed.
    this.#removeFile();
    this.#closed ??= new Promise<void>((resolve) => this.#server.tryShutdown(() => resolve()));
    return await resolvesWithin(clock, timeoutMs, this.#closed);
  }

  [Symbol.dispose](): void {
    this.#removeFile();
    this.#server.forceShutdown();
  }

  /**
   * Listens under a hidden name and moves the socket to its path once it accepts connections: the kubelet connects within a
   * millisecond, and waits a second after a refusal.
   */
  async #listen(): Promise<void> {
    // Kubelets ignore names that start with a dot. The name is as short as the other socket names: a socket path has at most
    // 107 bytes.
    const hidden = join(dirname(this.path), `.${randomBytes(3).toString('hex')}`);
    const bind = promisify(this.#server.bindAsync.bind(this.#server));
    const address = `unix:${hidden}`;
    await bind(address, ServerCredentials.createInsecure());
    try {
      await chmod(hidden, 0o600);
      const { ino } = await lstat(hidden);
      await rename(hidden, this.path);
      this.#bound = address;
      this.#inode = ino;
    } catch (error) {
      this.#server.unbind(address);
      throw error;
    }
  }

  #removeFile(): void {
    if (this.isInPlace) rmSync(this.path, { force: true });
    this.#inode = undefined;
  }
}
