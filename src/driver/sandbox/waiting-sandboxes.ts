import type { ClaimMetadata, WaitingSandbox } from '../../framework/metadata/index.ts';
import { type Clock, repeat, resolvesWithin } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { periods } from '../../lib/waiting-times.ts';
import type { StoredClaims } from '../state/index.ts';
import type { NamespaceProbe } from '../vf/networks.ts';
import type { SandboxRegistry } from './sandbox-registry.ts';

/**
 * How long the start waits for sandboxes, ms. Far shorter than a container's wait, so that a slow claim does not keep the
 * driver from connecting to the runtime.
 */
const budgetMs = 5_000;

export interface WaitingSandboxesOptions {
  metadata: Pick<ClaimMetadata, 'waiting'>;
  store: StoredClaims;
  registry: Pick<SandboxRegistry, 'adopt' | 'isComplete' | 'isLocated' | 'mayBeCurrent'>;
  networks: NamespaceProbe;
  clock: Clock;
  logger: Logger;
}

/**
 * Serves sandboxes that their waiting containers announce, while the runtime is not connected or does not know their network
 * namespaces. Before containerd registers a plugin, it asks each sandbox and container for its state; a container whose hook
 * runs does not answer within the 2 s that containerd waits. Once these sandboxes are served, the runtime registers the
 * plugin at once.
 */
export class WaitingSandboxes implements AsyncDisposable {
  readonly #options: WaitingSandboxesOptions;
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();

  constructor(options: WaitingSandboxesOptions) {
    this.#options = options;
  }

  /** Serves the sandboxes that wait now. Returns when they are ready, or after 5 s while the work continues. Never rejects. */
  async serve(): Promise<void> {
    const { clock, logger } = this.#options;
    const startedAt = clock.nowMs();
    const work = await this.#adopt();
    if (work.length === 0) return;
    await resolvesWithin(clock, startedAt + budgetMs - clock.nowMs(), Promise.all(work), this.#stop.signal);
    const ms = Math.round(clock.nowMs() - startedAt);
    logger.info({ sandboxes: work.length, ms }, 'attached the devices of sandboxes whose containers were waiting');
  }

  /** Begins to check every second for waiting sandboxes, as long as the runtime's list is out of date or incomplete. */
  start(): void {
    const { clock, registry } = this.#options;
    this.#loop = repeat(clock, periods.waitingSandboxes, this.#stop.signal, async () => {
      if (!registry.isComplete) await this.#adopt();
    });
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#loop;
  }

  /** Begins to serve waiting sandboxes. @returns the work; it does not reject */
  async #adopt(): Promise<Promise<void>[]> {
    const { metadata, registry, logger } = this.#options;
    try {
      const { sandboxes, problems } = await metadata.waiting();
      for (const err of problems) logger.debug({ err }, 'cannot read the announcement of a waiting container');
      // Sandboxes that the runtime has shown are already being served.
      return current(sandboxes)
        .filter((each) => !registry.isLocated(each.sandboxId) && this.#isToBeServed(each))
        .flatMap(({ claim: _claim, ...facts }) => {
          const sandbox = registry.adopt(facts, true);
          // A sandbox with a failure retries after its own pauses. It also logs its failures.
          return sandbox.failure === undefined ? [sandbox.want('ready').catch(() => undefined)] : [];
        });
    } catch (error) {
      logger.warn({ err: error }, 'cannot find the containers that wait: they wait until the runtime is connected');
      return [];
    }
  }

  /**
   * Returns whether a sandbox must be served: its network namespace exists, the claim is prepared for its pod, and the pod is
   * not known to be in another sandbox.
   * @throws StateError `store-unusable`
   */
  #isToBeServed(sandbox: WaitingSandbox): boolean {
    const { store, networks, registry } = this.#options;
    const { claim, podUid, netnsPath } = sandbox;
    const stored = store.claim(claim.uid);
    const isPrepared = stored?.state === 'prepared' && stored.podUids.includes(podUid);
    return isPrepared && netnsPath !== undefined && !networks.isGone(netnsPath) && registry.mayBeCurrent(sandbox);
  }
}

/**
 * Returns one announcement for each sandbox, which may wait for several claims. Skips pods with several sandboxes: only the
 * runtime knows which of them is current.
 */
function current(sandboxes: readonly WaitingSandbox[]): WaitingSandbox[] {
  const byPod = Map.groupBy(sandboxes, ({ podUid }) => podUid);
  return [...byPod.values()].flatMap((all) =>
    all.every(({ sandboxId }) => sandboxId === all[0]?.sandboxId) ? all.slice(0, 1) : [],
  );
}
