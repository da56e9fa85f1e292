import { randomBytes } from 'node:crypto';
import { rmSync } from 'node:fs';
import { chmod, rename } from 'node:fs/promises';
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
  /** Whether the socket file exists and belongs to this server. */
  #isThere = false;

  private constructor(path: string) {
    this.path = path;
  }

  /** @throws KubeletPluginError `socket-unavailable` */
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

  /** Removes the socket at once and waits for running calls. @returns whether all of them ended in time */
  async drain(clock: Clock, timeoutMs: number): Promise<boolean> {
    // Removed while we still listen, so that a successor's socket is never removed.
    this.#removeFile();
    this.#closed ??= new Promise<void>((resolve) => this.#server.tryShutdown(() => resolve()));
    return await resolvesWithin(clock, timeoutMs, this.#closed);
  }

  [Symbol.dispose](): void {
    this.#removeFile();
    this.#server.forceShutdown();
  }

  /**
   * Moves the socket to its path only once it accepts connections: the kubelet connects within a millisecond, and after a
   * refusal waits a second before it retries.
   */
  async #listen(): Promise<void> {
    // Kubelets ignore names that start with a dot. As short as our other names: a socket path has at most 107 bytes.
    const hidden = join(dirname(this.path), `.${randomBytes(3).toString('hex')}`);
    const bind = promisify(this.#server.bindAsync.bind(this.#server));
    await bind(`unix:${hidden}`, ServerCredentials.createInsecure());
    await chmod(hidden, 0o600);
    await rename(hidden, this.path);
    this.#isThere = true;
  }

  #removeFile(): void {
    if (this.#isThere) rmSync(this.path, { force: true });
    this.#isThere = false;
  }
}
