import { type Clock, repeat } from '../../lib/clock.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { notify } from '../../lib/notify.ts';
import { GrpcServer, type GrpcService } from './grpc-server.ts';
import { removeDeadSockets } from './socket-file.ts';
import { isInstanceDraSocket, isInstanceRegistrationSocket, type SocketPaths } from './socket-paths.ts';

/** Time for the kubelet's last registration call, ms. */
const registrationDrainMs = 1_000;
const lockMs = 10_000;
/** Pause between checks of the sockets, ms. */
const checkMs = 60_000;
/** Key of the lock for the sockets of all instances. No claim's key contains a space. */
const socketsKey = 'all sockets';

/** Options of the sockets; most are as in `KubeletPluginOptions`. */
export interface ServedSocketsOptions {
  driver: string;
  dataDir: string;
  registryDir: string;
  podUid?: string | undefined;
  logger: Logger;
  clock: Clock;
  locks: Locks;
  paths: SocketPaths;
  onSocketLost?: ((problem: string) => void) | undefined;
}

/**
 * The DRA socket of an instance, and the registration socket that points to it. Both are checked every minute, since the
 * kubelet forgets a driver whose registration socket is removed. Disposing removes the sockets and cancels all calls.
 */
export class ServedSockets implements Disposable {
  readonly #options: ServedSocketsOptions;
  readonly #stack = new DisposableStack();
  readonly #stop = new AbortController();
  /** The gRPC servers, that of the DRA socket first: the kubelet connects to it when it sees the registration socket. */
  #servers: GrpcServer[] = [];
  #checking: Promise<void> | undefined;

  constructor(options: ServedSocketsOptions) {
    this.#options = options;
  }

  /** Listens on both sockets. @throws KubeletPluginError `socket-unavailable`, `lock-unavailable` */
  async listen(services: { dra: GrpcService[]; registration: GrpcService[] }): Promise<void> {
    const { clock, paths } = this.#options;
    // While one instance removes sockets without a listener, no other instance may be about to listen on its socket.
    using _ = await this.#lock();
    await this.#removeLeftovers();
    for (const name of ['dra', 'registration'] as const) {
      this.#servers.push(this.#stack.use(await GrpcServer.start(paths[name], services[name])));
    }
    this.#checking = repeat(clock, checkMs, this.#stop.signal, () => this.#check());
  }

  /** Ends the registration. The kubelet then turns to another instance, if there is one. */
  async deregister(): Promise<void> {
    this.#stop.abort();
    await this.#checking;
    await this.#servers[1]?.drain(this.#options.clock, registrationDrainMs);
  }

  /** Waits for calls of the kubelet. @returns `false` if some are still running after `timeoutMs` */
  async drain(timeoutMs: number): Promise<boolean> {
    return (await this.#servers[0]?.drain(this.#options.clock, timeoutMs)) ?? true;
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    this.#stack.dispose();
  }

  async #lock(): Promise<Disposable> {
    const { clock, locks } = this.#options;
    using deadline = clock.deadline(lockMs, this.#stop.signal);
    return await locks.acquireAll([socketsKey], deadline.signal);
  }

  /** Listens on both sockets again if one was lost: the kubelet connects anew when it sees a new registration socket. */
  async #check(): Promise<void> {
    const { driver, logger, onSocketLost } = this.#options;
    const lost = this.#servers.filter((server) => !server.isInPlace).map(({ path }) => path);
    if (lost.length === 0) return;
    const problem = `something removed or replaced ${lost.join(' and ')}`;
    notify(logger, 'onSocketLost', onSocketLost, problem);
    try {
      using _ = await this.#lock();
      for (const server of this.#servers) await server.listenAgain();
      logger.warn({ driver, problem }, 'listening again for the kubelet');
    } catch (err) {
      if (!this.#stop.signal.aborted) logger.error({ driver, problem, err }, 'cannot listen for the kubelet');
    }
  }

  /** Removes the sockets of killed instances: a kubelet would keep trying to register them. */
  async #removeLeftovers(): Promise<void> {
    const { podUid, dataDir, registryDir, driver, logger } = this.#options;
    if (podUid === undefined) return;
    const found = [
      await removeDeadSockets(registryDir, (name) => isInstanceRegistrationSocket(driver, name)),
      await removeDeadSockets(dataDir, isInstanceDraSocket),
    ];
    for (const err of found.flatMap(({ problems }) => problems)) {
      logger.warn({ driver, err }, 'cannot remove stale sockets');
    }
    const paths = found.flatMap(({ removed }) => removed);
    if (paths.length > 0) logger.info({ driver, paths }, 'removed stale sockets');
  }
}
