import type { Backoff } from '../../lib/backoff.ts';
import type { NetworkNamespace } from '../vf/networks.ts';
import { Follow } from './follow.ts';
import { tentative } from './read-meanwhile.ts';
import type { SandboxDeps } from './sandbox-deps.ts';

export interface PodChangesOptions {
  deps: SandboxDeps;
  /** Log fields that name the pod. */
  log: object;
  /** Called when something in the pod has changed. */
  onChange: () => void;
  /** Called when the pod keeps changing, so that it is read less often from now on. */
  onFlapping: () => void;
}

/**
 * Decides when a pod whose VFs are attached is read again: after a change in its namespace, or after a short time if its
 * addresses are tentative.
 */
export class PodChanges {
  readonly #options: PodChangesOptions;
  #follow: Follow | undefined;
  /** Number of reads of tentative addresses since they were last settled. */
  #tentativeReads = 0;

  constructor(options: PodChangesOptions) {
    this.#options = options;
  }

  get isFollowed(): boolean {
    return this.#follow !== undefined;
  }

  /** Begins to report changes in the namespace. */
  follow(namespace: NetworkNamespace): void {
    const { deps, log, onChange, onFlapping } = this.#options;
    const { liveUpdates, networks, ends, clock, logger } = deps;
    if (!liveUpdates || this.#follow !== undefined) return;
    try {
      this.#follow = new Follow(namespace, { networks, ends, clock, onChange, onFlapping });
    } catch (error) {
      logger.warn({ ...log, err: error }, 'cannot watch the network of a pod for changes');
    }
  }

  unfollow(): void {
    this.#follow?.[Symbol.dispose]();
    this.#follow = undefined;
  }

  /** Schedules another pass if addresses are tentative. If the pod is followed, the kernel reports when they are settled. */
  readLater(isAnyTentative: boolean, retry: Backoff): void {
    const isAwaited = isAnyTentative && this.#follow === undefined;
    this.#tentativeReads = isAwaited ? this.#tentativeReads + 1 : 0;
    if (isAwaited && this.#tentativeReads <= tentative.reads) retry.after(tentative.everyMs);
  }
}
