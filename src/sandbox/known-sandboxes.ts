import type { PodSandbox } from '../../nri/index.ts';
import type { Attachment } from '../driver/index.ts';
import { isNetnsGone, netnsPathOf } from './pod-netns.ts';

/**
 * The sandboxes that the runtime has, as far as it told: all of them when it connects, then each that comes and goes.
 * While it is not connected nobody knows, and a containerd that was restarted never tells of the end of what it had
 * before: those are found by their network namespaces.
 */
export class KnownSandboxes {
  readonly #sandboxes = new Map<string, PodSandbox>();
  /** By UID of the pod: the id of the sandbox that it lives in. */
  readonly #current = new Map<string, string>();
  #isFresh = false;

  /** Whether a sandbox that is not here is not there either. */
  get isFresh(): boolean {
    return this.#isFresh;
  }

  /** What the runtime told when it connected, once it has. */
  replace(pods: PodSandbox[]): void {
    const ids = new Set(pods.map(({ id }) => id));
    for (const { id } of this.all()) if (!ids.has(id)) this.delete(id);
    for (const pod of pods) this.add(pod);
    this.#isFresh = true;
  }

  add(pod: PodSandbox): void {
    this.#sandboxes.set(pod.id, pod);
  }

  delete(sandboxId: string): void {
    const podUid = this.#sandboxes.get(sandboxId)?.uid;
    if (podUid !== undefined && this.#current.get(podUid) === sandboxId) this.#current.delete(podUid);
    this.#sandboxes.delete(sandboxId);
  }

  /**
   * The runtime does something in the sandbox that is only done in the one that its pod lives in. Others of the pod are
   * what is left of it: a containerd that was killed keeps what it was making, and lists it, until somebody removes it.
   * @returns the ids of those
   */
  makeCurrent({ id, uid }: PodSandbox): string[] {
    this.#current.set(uid, id);
    return this.#ofPod(uid).filter((other) => other !== id);
  }

  /**
   * Whether the pod lives in another sandbox than this one. If the runtime has not shown which since we started, it is the
   * one that has its VFs: its containers may be running.
   * @param attachments where the pod's VFs are
   */
  livesElsewhere({ id, uid }: PodSandbox, attachments: () => readonly Attachment[]): boolean {
    const current = this.#current.get(uid);
    if (current !== undefined) return current !== id;
    return attachments().some(
      ({ podUid, sandboxId, netnsPath }) =>
        podUid === uid && sandboxId !== id && this.has(sandboxId) && !isNetnsGone(netnsPath),
    );
  }

  /** The sandbox that the pod lives in, as far as the runtime has shown it since we started. */
  currentOf(podUid: string): string | undefined {
    return this.#current.get(podUid);
  }

  /** The connection to the runtime is gone. */
  expire(): void {
    this.#isFresh = false;
  }

  has(sandboxId: string): boolean {
    return this.#sandboxes.has(sandboxId);
  }

  hasPod(podUid: string): boolean {
    return this.#ofPod(podUid).length > 0;
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

  #ofPod(podUid: string): string[] {
    return this.all().flatMap(({ id, uid }) => (uid === podUid ? [id] : []));
  }
}
