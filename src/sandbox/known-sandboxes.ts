import type { PodSandbox } from '../../nri/index.ts';
import { isNetnsGone, netnsPathOf } from './pod-netns.ts';

/**
 * The sandboxes that the runtime has, as far as it told: all of them when it connects, then each that comes and goes.
 * While it is not connected nobody knows, and a containerd that was restarted never tells of the end of what it had
 * before: those are found by their network namespaces.
 */
export class KnownSandboxes {
  readonly #sandboxes = new Map<string, PodSandbox>();
  #isFresh = false;

  /** Whether a sandbox that is not here is not there either. */
  get isFresh(): boolean {
    return this.#isFresh;
  }

  /** What the runtime told when it connected, once it has. */
  replace(pods: PodSandbox[]): void {
    this.#sandboxes.clear();
    for (const pod of pods) this.add(pod);
    this.#isFresh = true;
  }

  add(pod: PodSandbox): void {
    this.#sandboxes.set(pod.id, pod);
  }

  delete(sandboxId: string): void {
    this.#sandboxes.delete(sandboxId);
  }

  /** The connection to the runtime is gone. */
  expire(): void {
    this.#isFresh = false;
  }

  has(sandboxId: string): boolean {
    return this.#sandboxes.has(sandboxId);
  }

  hasPod(podUid: string): boolean {
    return this.all().some(({ uid }) => uid === podUid);
  }

  all(): PodSandbox[] {
    return [...this.#sandboxes.values()];
  }

  /** Takes out those whose network namespace is gone. */
  prune(): void {
    for (const pod of this.all()) {
      const path = netnsPathOf(pod);
      if (path !== undefined && isNetnsGone(path)) this.delete(pod.id);
    }
  }
}
