import { type Clock, repeat } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { periods } from '../../lib/waiting-times.ts';
import type { Sandbox } from './sandbox.ts';
import type { SandboxRegistry } from './sandbox-registry.ts';

/**
 * Schedule of checks: a sandbox that has not been ready for `firstMs` is checked only at every `everyLook`-th call. By then
 * its failure is lasting, and its containers are refused instead of waiting: a VF that has left the pod may not return for
 * days.
 */
const patience = { firstMs: 120_000, everyLook: 15 };
const readTimeoutMs = 10_000;

export interface DeletedPodsOptions {
  registry: Pick<SandboxRegistry, 'waiting'>;
  /**
   * Returns whether the pod with this UID exists and is not being deleted. @throws KubeError if the API server does not
   * answer
   */
  isWanted: (pod: { namespace: string; name: string; uid: string }, signal: AbortSignal) => Promise<boolean>;
  clock: Clock;
  logger: Logger;
}

/**
 * Ends containers that wait in the start gate of a deleted pod. Until they have ended, nothing on the node reports the
 * deletion: the kubelet handles it only after its request to start the container, and the runtime cannot stop a container
 * whose hook runs. Asks the API server only while containers may be waiting.
 */
export class DeletedPods implements AsyncDisposable {
  readonly #options: DeletedPodsOptions;
  readonly #stop = new AbortController();
  #loop: Promise<void> = Promise.resolve();
  #looks = 0;
  /** Times since which sandboxes have not been ready, ms. */
  #sinceMs = new Map<Sandbox, number>();

  constructor(options: DeletedPodsOptions) {
    this.#options = options;
  }

  start(): void {
    this.#loop = repeat(this.#options.clock, periods.deletedPods, this.#stop.signal, () => this.look());
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#loop;
  }

  /** Checks the pods of sandboxes that are not ready; after two minutes, only at every fifteenth call. Never rejects. */
  async look(): Promise<void> {
    const { registry, clock } = this.#options;
    const nowMs = clock.nowMs();
    const isSlowTurn = this.#looks++ % patience.everyLook === 0;
    this.#sinceMs = new Map(registry.waiting().map((sandbox) => [sandbox, this.#sinceMs.get(sandbox) ?? nowMs]));
    const due = [...this.#sinceMs].filter(([, sinceMs]) => isSlowTurn || nowMs - sinceMs < patience.firstMs);
    await Promise.all(due.map(([sandbox]) => this.#lookAt(sandbox)));
  }

  async #lookAt(sandbox: Sandbox): Promise<void> {
    const { isWanted, clock, logger } = this.#options;
    const { podNamespace: namespace, podName: name, podUid: uid, sandboxId } = sandbox.facts;
    if (namespace === undefined || name === undefined) return;
    using deadline = clock.deadline(readTimeoutMs, this.#stop.signal);
    const log = { pod: `${namespace}/${name}`, sandbox: sandboxId };
    try {
      if (await isWanted({ namespace, name, uid }, deadline.signal)) return;
      await sandbox.endWaiting();
      logger.debug(log, 'released the waiting containers of a deleted pod');
    } catch (error) {
      if (!this.#stop.signal.aborted) logger.debug({ ...log, err: error }, 'cannot tell whether the pod was deleted');
    }
  }
}
