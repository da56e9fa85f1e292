import { chmod } from 'node:fs/promises';
import { Server, ServerCredentials, type ServiceDefinition, type UntypedServiceImplementation } from '@grpc/grpc-js';
import type { Clock } from '../clock.ts';
import { KubeletPluginError } from './errors.ts';
import { clearSocketPath } from './socket-file.ts';

export interface GrpcService {
  definition: ServiceDefinition;
  handlers: object;
}

/** Serves gRPC on a unix socket that only its owner and root can connect to. Disposing cuts all calls off. */
export class GrpcServer implements Disposable {
  readonly path: string;
  readonly #server = new Server();
  #closed: Promise<void> | undefined;

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
      await server.#bind();
      await chmod(path, 0o600);
    } catch (cause) {
      if (cause instanceof KubeletPluginError) throw cause;
      throw new KubeletPluginError('socket-unavailable', `cannot listen on ${path}`, { cause, path });
    }
    stack.move();
    return server;
  }

  /**
   * Removes the socket at once, and waits for the calls that are in flight.
   * @returns whether all ended within the time
   */
  async drain(clock: Clock, timeoutMs: number): Promise<boolean> {
    // The socket's file goes when the listener closes, so nothing that a successor put there is ever removed.
    this.#closed ??= new Promise<void>((resolve) => this.#server.tryShutdown(() => resolve()));
    const timer = new AbortController();
    const timedOut = clock.sleep(timeoutMs, timer.signal).then(
      () => false,
      () => false,
    );
    const isDrained = await Promise.race([this.#closed.then(() => true), timedOut]);
    timer.abort();
    return isDrained;
  }

  [Symbol.dispose](): void {
    this.#server.forceShutdown();
  }

  #bind(): Promise<void> {
    return new Promise((resolve, reject) =>
      this.#server.bindAsync(`unix:${this.path}`, ServerCredentials.createInsecure(), (error) =>
        error ? reject(error) : resolve(),
      ),
    );
  }
}
