import { type Clock, resolvesWithin, systemClock } from '../../lib/clock.ts';
import { defined } from '../../lib/defined.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import { notify } from '../../lib/notify.ts';
import type { ClaimMetadata } from '../metadata/index.ts';
import { checkOptions } from './check-options.ts';
import type { ClaimReader } from './claims.ts';
import { createDraService, draVersions } from './dra-service.ts';
import { KubeletPluginError } from './errors.ts';
import type { GrpcService } from './grpc-server.ts';
import { type DeviceHealth, HealthBoard } from './health.ts';
import { createHealthService, healthVersions } from './health-service.ts';
import { type InstanceLocks, openInstanceLocks } from './instance-locks.ts';
import type { DraPlugin } from './plugin.ts';
import { PluginCalls } from './plugin-calls.ts';
import { Registration, type RegistrationStatus } from './registration.ts';
import { ServedSockets } from './served-sockets.ts';
import { type MetadataFiles, restoreEach, shareMetadataFiles } from './shared-files.ts';
import { chooseSocketPaths, type SocketPaths } from './socket-paths.ts';

/**
 * Time for running calls when the helper stops, ms. Less than a pod's default grace period of 30 s, to leave time for a clean
 * stop.
 */
const defaultDrainMs = 20_000;
/** Time for a driver to end its aborted calls, ms. */
const abortGraceMs = 2_000;

export interface KubeletPluginOptions {
  driver: string;
  /** The driver's directory below the kubelet's `plugins`, with the DRA socket. The kubelet must see it under this path. */
  dataDir: string;
  /** The kubelet's directory `plugins_registry`. */
  registryDir: string;
  claims: ClaimReader;
  /** Metadata files and CDI specs of claims. Absent: device metadata is off. */
  metadata?: ClaimMetadata;
  /**
   * Called with each error that keeps metadata or CDI specs of a prepared claim from being written. The prepare of the claim
   * fails with the error.
   */
  onMetadataError?: (error: Error) => void;
  /**
   * `metadata.uid` of the driver's own pod, for rolling updates (kubelet 1.33 and later): the new instance serves beside the
   * old one, on its own sockets, and locks keep the two from working on a claim at once. Absent: a second instance is refused.
   */
  podUid?: string | undefined;
  /** Whether the health of devices is reported to the kubelet: see `setHealth`. Default false. */
  health?: boolean;
  /**
   * Whether calls run one at a time, as in the Go helper. `false`: only calls about the same claim do, so that a slow device or
   * server delays only its own pod. In a rolling update this applies to the calls of both instances together. Default true.
   */
  serialize?: boolean;
  /**
   * Locks of a driver that locks each claim, by its `claimKey`, whenever it works on the claim; the driver's instances share
   * the locks. Prepare and unprepare are called with the claims' locks held, and the driver must hold a claim's lock when it
   * calls the methods about metadata. Only `endGate` may be called without it, if the records of `ClaimMetadata` support
   * `together`. Absent: locks in `dataDir`, which calls about metadata acquire by themselves.
   */
  locks?: Locks;
  /** Time for which stopping waits for running calls, ms. Default 20 s, less than a pod's grace period. */
  drainMs?: number;
  clock?: Clock;
  logger: Logger;
  /**
   * Directory of this package's `.proto` files, for a bundled driver. Default: `proto` beside the bundle or beside its
   * directory.
   */
  protoDir?: string;
  /** Called each time the kubelet accepts or refuses the registration. The kubelet retries after a refusal. */
  onRegistration?: (status: RegistrationStatus) => void;
  /**
   * Called when another program has removed or replaced a socket: the kubelet then forgets the driver, or no longer reaches it.
   * The helper checks its sockets every minute and listens again, after which `onRegistration` is called.
   */
  onSocketLost?: (problem: string) => void;
}

/** Updates the metadata of a request's devices. Source: KEP-5304 `MetadataUpdater`. */
export interface MetadataUpdater {
  /**
   * Replaces the metadata of a request's devices. The first call creates the file. With `sandboxId`, the gate opens for that
   * sandbox after the call for the last request; without, the gate stays as it is.
   */
  updateRequestMetadata: ClaimMetadata['update'];
}

/**
 * Controls the start gate of a `ClaimMetadata` that has one: containers of claims with deferred requests wait in an OCI hook
 * until their sandbox is served, and fail when the hook times out. For a claim without a gate, `openGate` still records the
 * sandbox and completes the claim's files; `holdGate` and `endGate` do nothing. Without `ClaimMetadata` no call does anything.
 */
export interface StartGate {
  openGate: ClaimMetadata['openGate'];
  holdGate: ClaimMetadata['holdGate'];
  endGate: ClaimMetadata['endGate'];
}

/**
 * A driver that is served to the kubelet. Disposing stops it: it first removes the registration socket, so that the kubelet
 * turns to another instance; running calls end, or are aborted after `drainMs`. Claims stay prepared.
 */
export interface KubeletPluginHelper extends MetadataUpdater, StartGate, AsyncDisposable {
  readonly sockets: Readonly<SocketPaths>;
  /** The kubelet's last answer; `undefined`: the kubelet has not answered yet. */
  readonly registration: RegistrationStatus | undefined;
  /**
   * Waits until the kubelet has accepted the registration.
   * @throws KubeletPluginError `registration-refused` if the signal fires first, with the kubelet's last answer
   */
  whenRegistered(signal: AbortSignal): Promise<void>;
  /**
   * Reports the health of all devices; call it after each check of the devices. The kubelet gets the report at once, and again
   * on each new connection; it appears in the status of pods (feature gate `ResourceHealthStatus`). A device's health becomes
   * unknown if its next report is late (`timeoutSeconds`).
   * @throws KubeletPluginError `health-invalid`, also without the option `health`
   */
  setHealth(devices: readonly DeviceHealth[]): void;
  /**
   * Hides the content of a claim's files until the next update, and closes the claim's gate, so that no container starts. Call
   * it when the content is obsolete, since the devices have left the pod's sandbox.
   */
  withdrawMetadata: ClaimMetadata['withdraw'];
  /**
   * Recreates files and CDI specs from the records of claims, and closes gates that should be closed according to the records.
   * Call it when the driver starts.
   * @returns the failures of single claims, which are not thrown
   */
  restoreMetadata(): Promise<Error[]>;
  /**
   * Unprepares a claim that no kubelet knows any more, as the kubelet's call would, and removes its files and CDI specs.
   * Failures are logged.
   * @param isOver returns whether the claim has really ended; called while no instance runs a call about the claim
   * @returns whether the claim was unprepared
   */
  reclaim: PluginCalls['reclaim'];
  /**
   * Prepares a claim again as the kubelet's call would. Needed when a prepared claim passes to another pod, since the kubelet
   * then makes no call. The driver's answer for the claim is logged.
   * @param isDue returns whether the claim must be prepared; called while no instance runs a call about the claim
   * @returns whether the claim was prepared
   * @throws KubeletPluginError `claim-unavailable`
   */
  prepareAgain: PluginCalls['prepareAgain'];
}

/**
 * Serves a driver to the kubelet: the DRA socket first, then the registration socket that points to it.
 * @throws KubeletPluginError `invalid-options`, `socket-unavailable`, `lock-unavailable`
 */
export async function startKubeletPlugin(
  plugin: DraPlugin,
  options: KubeletPluginOptions,
): Promise<KubeletPluginHelper> {
  checkOptions(plugin, options);
  const sockets = chooseSocketPaths(options);
  const locks = openInstanceLocks(options, options.clock ?? systemClock);
  const running = new Running(plugin, options, { sockets, locks });
  await running.listen();
  return {
    sockets: running.sockets,
    get registration() {
      return running.registration.status;
    },
    whenRegistered: (signal) => running.registration.whenRegistered(signal),
    setHealth: (devices) => running.setHealth(devices),
    restoreMetadata: async () => (await running.withFiles((files) => running.restore(files))) ?? [],
    withdrawMetadata: (...args) => running.withFiles((files) => files.withdraw(...args)),
    openGate: (claim, sandboxId) => running.withFiles((files) => files.openGate(claim, sandboxId)),
    holdGate: (claim, sandboxId, reason) => running.withFiles((files) => files.holdGate(claim, sandboxId, reason)),
    endGate: (claim, sandboxId) => running.withFiles((files) => files.endGate(claim, sandboxId)),
    reclaim: (claim, isOver, signal) => running.tracked(running.calls.reclaim(claim, isOver, signal)),
    prepareAgain: (claim, isDue, signal) => running.tracked(running.calls.prepareAgain(claim, isDue, signal)),
    async updateRequestMetadata(claim, request, devices, sandboxId) {
      const update = await running.withFiles((files) => files.update(claim, request, devices, sandboxId));
      if (update === undefined) throw new KubeletPluginError('driver-contract', 'device metadata is not enabled');
      return update;
    },
    [Symbol.asyncDispose]: () => running.stop(),
  };
}

class Running {
  readonly sockets: SocketPaths;
  readonly registration: Registration;
  readonly #options: KubeletPluginOptions;
  readonly #clock: Clock;
  readonly #metadata: MetadataFiles | undefined;
  readonly calls: PluginCalls;
  readonly #health: HealthBoard | undefined;
  readonly #locks: Locks;
  readonly #streams = new AbortController();
  readonly #updates = new Set<Promise<unknown>>();
  readonly #served: ServedSockets;
  readonly #ownLocks: InstanceLocks;
  #loadContract: (() => void) | undefined;
  #stopped: Promise<void> | undefined;

  constructor(
    plugin: DraPlugin,
    options: KubeletPluginOptions,
    { sockets, locks }: { sockets: SocketPaths; locks: InstanceLocks },
  ) {
    const { driver, claims, logger, metadata, clock = systemClock, serialize = true } = options;
    this.#options = options;
    this.#clock = clock;
    this.sockets = sockets;
    this.#ownLocks = locks;
    this.#locks = locks.locks;
    this.#metadata =
      metadata && options.locks === undefined ? shareMetadataFiles(metadata, this.#locks, clock) : metadata;
    this.calls = new PluginCalls(plugin, {
      driver,
      claims,
      clock,
      logger,
      metadata: this.#metadata,
      ...defined({ onMetadataError: options.onMetadataError }),
      locks: this.#locks,
      ...(serialize && { turns: locks.turns }),
    });
    const { dataDir, registryDir, podUid, onSocketLost } = options;
    const place = { driver, dataDir, registryDir, podUid, paths: sockets };
    this.#served = new ServedSockets({ ...place, logger, clock, locks: this.#locks, onSocketLost });
    this.#health = options.health === true ? new HealthBoard() : undefined;
    this.registration = new Registration({
      driver,
      ...defined({ protoDir: options.protoDir }),
      endpoint: this.sockets.dra,
      services: [
        ...draVersions.map((version) => `${version}.DRAPlugin`),
        ...(this.#health === undefined ? [] : healthVersions.map((version) => `${version}.DRAResourceHealth`)),
      ],
      logger,
      onStatus: (status) => {
        notify(logger, 'onRegistration', options.onRegistration, status);
        // Loaded after the registration, while nothing waits for it, rather than at the first pod.
        if (status.registered) setImmediate(() => this.#loadContract?.());
      },
    });
  }

  setHealth(devices: readonly DeviceHealth[]): void {
    if (this.#health === undefined) {
      const hint = 'start the helper with the option health';
      throw new KubeletPluginError(
        'health-invalid',
        'cannot report the health of devices: the helper does not serve it',
        { hint },
      );
    }
    this.#health.set(devices);
  }

  /** Runs a task with the metadata files. @returns `undefined` without device metadata */
  async withFiles<T>(task: (files: MetadataFiles) => Promise<T>): Promise<T | undefined> {
    return this.#metadata === undefined ? undefined : await this.tracked(task(this.#metadata));
  }

  async restore(files: MetadataFiles): Promise<Error[]> {
    return await (this.#options.locks ? restoreEach(files, this.#locks, this.#clock) : files.restore());
  }

  /** Tracks work, so that stopping waits for it. */
  async tracked<T>(work: Promise<T>): Promise<T> {
    const settled = work.catch(() => undefined).finally(() => this.#updates.delete(settled));
    this.#updates.add(settled);
    return await work;
  }

  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async listen(): Promise<void> {
    try {
      await this.#served.listen({ dra: this.#services(), registration: [this.registration.service()] });
    } catch (error) {
      this.#served[Symbol.dispose]();
      this.#ownLocks[Symbol.dispose]();
      throw error;
    }
  }

  #services(): GrpcService[] {
    const services = draVersions.map((version) => createDraService(version, this.calls, this.#options.protoDir));
    this.#loadContract = services[0]?.load;
    const board = this.#health;
    if (board === undefined) return services;
    const { protoDir, logger } = this.#options;
    const options = { board, clock: this.#clock, signal: this.#streams.signal, logger, protoDir };
    return [...services, ...healthVersions.map((version) => createHealthService(version, options))];
  }

  /** Waits for calls of the kubelet and of the driver. @returns `false` if some are still running after `timeoutMs` */
  async #end(timeoutMs: number): Promise<boolean> {
    const ends = [this.#served.drain(timeoutMs), resolvesWithin(this.#clock, timeoutMs, Promise.all(this.#updates))];
    return (await Promise.all(ends)).every(Boolean);
  }

  async #stop(): Promise<void> {
    const { driver, logger, drainMs = defaultDrainMs } = this.#options;
    await this.#served.deregister();
    // Health streams never end on their own.
    this.#streams.abort();
    if (!(await this.#end(drainMs))) {
      logger.warn({ driver, waitedMs: drainMs }, 'aborting calls in flight');
      this.calls.abort();
      await this.#end(abortGraceMs);
    }
    this.#served[Symbol.dispose]();
    await Promise.all(this.#updates);
    this.#ownLocks[Symbol.dispose]();
  }
}
