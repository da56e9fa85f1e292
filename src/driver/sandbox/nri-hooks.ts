import type { CallContext, ContainerAdjustment, PluginHandlers, RuntimeInfo } from '../../../nri/index.ts';
import { type Clock, resolvesWithin } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import type { Container, PodSandbox } from './container-fields.ts';
import type { NumaChecks } from './numa-guard.ts';
import { factsOf } from './pod.ts';
import type { SandboxRegistry } from './sandbox-registry.ts';
import type { StartGuard } from './start-guard.ts';

/**
 * How long RunPodSandbox waits for the work that it has started, ms, unless other pods are expected. Usually the work is done
 * by then. Longer work continues after the answer while containers wait in their start gate: a slow hook would delay every
 * other request that takes NRI's lock.
 */
const startBudgetMs = 500;
/** Share of the runtime's deadline that a hook uses. After the deadline, the runtime proceeds without the driver. */
const deadlineShare = 0.75;

export interface NriHooksOptions {
  registry: SandboxRegistry;
  guard: StartGuard;
  numa: NumaChecks;
  /** Returns the adjustment of a container: see `containerAdjustment`. */
  adjustmentOf: (pod: PodSandbox, container: Container) => ContainerAdjustment | undefined;
  /** Called after the runtime has listed its sandboxes. */
  onSynchronized: () => void;
  clock: Clock;
  logger: Logger;
}

/**
 * Translates events of the runtime into wanted states of sandboxes. Events may arrive in any order and for unknown sandboxes,
 * and must be answered before the runtime's deadline: see nri/README.md.
 */
export class NriHooks implements PluginHandlers {
  readonly #options: NriHooksOptions;

  constructor(options: NriHooksOptions) {
    this.#options = options;
  }

  configure({ name, version }: RuntimeInfo): void {
    this.#options.logger.info({ runtime: name, version }, 'connected to the runtime');
  }

  synchronize(pods: PodSandbox[], containers: Container[]): void {
    const { registry, onSynchronized } = this.#options;
    this.#observe(pods, containers);
    registry.synchronize(pods.map(factsOf), new Set(containers.map(({ podSandboxId }) => podSandboxId)));
    onSynchronized();
  }

  disconnected(): void {
    this.#options.registry.expire();
  }

  /** Attaches VFs. Never refuses a sandbox: its containers do not start before the VFs are attached. */
  async runPodSandbox(pod: PodSandbox, context: CallContext): Promise<void> {
    const { registry, guard } = this.#options;
    const sandbox = registry.adopt(factsOf(pod), false);
    const ready = sandbox.want('ready').catch(() => undefined);
    // Most pods have no claim, so there is nothing to wait for.
    if (sandbox.phase === 'pending' || guard.mayReturnEarly(pod)) return;
    await this.#within(Math.min(startBudgetMs, budgetOf(context)), ready);
  }

  /**
   * Waits for the VFs if the container cannot wait by itself: the kubelet would retry a refused container only seconds later.
   * Then waits for the metadata on NUMA alignment, so that the container finds it when it starts.
   * @returns the adjustment that CDI cannot make
   * @throws SandboxError `not-ready`, `numa-mismatch`, `numa-unknown`
   */
  async createContainer(
    pod: PodSandbox,
    container: Container,
    context: CallContext,
  ): Promise<ContainerAdjustment | undefined> {
    const { registry, guard, numa, adjustmentOf } = this.#options;
    // The RunPodSandbox event may have been missed while the driver was not connected.
    const sandbox = registry.adopt(factsOf(pod), true);
    const ready = sandbox.want('ready').catch(() => undefined);
    try {
      guard.check(pod, container, sandbox);
    } catch (error) {
      if (sandbox.failure !== undefined || sandbox.isEnding) throw error;
      await this.#within(Math.min(startBudgetMs, budgetOf(context)), ready);
      guard.check(pod, container, sandbox);
    }
    if (numa.check(pod, container)) {
      const refreshed = sandbox.refresh().catch(() => undefined);
      await this.#within(Math.min(startBudgetMs, budgetOf(context)), refreshed);
    }
    return adjustmentOf(pod, container);
  }

  /**
   * Detaches VFs, and waits as long as the deadline allows: afterwards, the runtime removes the network namespace with
   * everything in it. Never fails, since CRI-O would refuse to stop the pod. Failures are retried in the background, and by
   * unprepare.
   */
  async stopPodSandbox(pod: PodSandbox, context: CallContext): Promise<void> {
    // The sandbox logs its failures.
    const ended = this.#options.registry.end(factsOf(pod)).catch(() => undefined);
    await this.#within(budgetOf(context), ended);
  }

  /** Ends the sandbox. After a failed start, containerd sends this event without a stop before it. */
  async removePodSandbox(pod: PodSandbox, context: CallContext): Promise<void> {
    await this.stopPodSandbox(pod, context);
  }

  /** Checks the NUMA nodes of containers that were created while the driver was not connected. */
  #observe(pods: readonly PodSandbox[], containers: readonly Container[]): void {
    const { numa, logger } = this.#options;
    const byId = new Map(pods.map((pod) => [pod.id, pod]));
    for (const container of containers) {
      const pod = byId.get(container.podSandboxId);
      if (pod === undefined || container.state === 'stopped') continue;
      try {
        numa.observe(pod, container);
      } catch (err) {
        const facts = { err, container: container.name, pod: `${pod.namespace}/${pod.name}` };
        logger.warn(
          facts,
          'cannot compare the CPUs of a running container with its devices; reconciliation tries again',
        );
      }
    }
  }

  async #within(budgetMs: number, work: Promise<void>): Promise<void> {
    await resolvesWithin(this.#options.clock, budgetMs, work);
  }
}

function budgetOf({ timeoutMs }: CallContext): number {
  return Math.floor(deadlineShare * timeoutMs);
}
