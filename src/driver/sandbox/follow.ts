import { onAbort } from '../../lib/abort.ts';
import { pauseMs } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { pauses } from '../../lib/waiting-times.ts';
import type { NamespaceOpener, NetworkNamespace } from '../vf/networks.ts';
import type { NamespaceWatcher } from './namespace-ends.ts';

/**
 * Number of reads before the pauses grow. Changes come in bursts, for example when an address is replaced, or a link goes
 * down and up. A pod that keeps changing is read less and less often, and its events are ignored between reads.
 */
const looksAtFirst = 8;
/** Pause between reads, ms, at which the pod begins to count as flapping. */
const flappingMs = 4_000;

export interface FollowOptions {
  networks: NamespaceOpener;
  ends: NamespaceWatcher;
  /** Called after a change, once the pod has had time to settle. */
  onChange: () => void;
  /** Called once when a pod keeps changing its links or addresses, and again only after it has been quiet. */
  onFlapping?: () => void;
  clock: Clock;
}

/**
 * Follows changes of links and addresses in a pod's network namespace from its construction on. It keeps the namespace alive,
 * so it must be disposed before a VF is detached. It ends by itself when the namespace is no longer at its path: only then
 * can the VFs of a deleted namespace return to the host.
 */
export class Follow implements Disposable {
  readonly #options: FollowOptions;
  readonly #netnsPath: string;
  readonly #identity: string;
  readonly #stop = new AbortController();
  readonly #end: Disposable;
  #watch: Disposable;
  #isSettling = false;
  /** Number of reads since the pod was last quiet. */
  #looks = 0;
  #lastLookMs = Number.NEGATIVE_INFINITY;

  /**
   * @param namespace the namespace to follow; it may be closed afterwards
   * @throws NetlinkError `netns-refused`, `netlink-lost`
   */
  constructor(namespace: NetworkNamespace, options: FollowOptions) {
    this.#options = options;
    this.#netnsPath = namespace.netns.path;
    this.#identity = namespace.identity;
    this.#watch = namespace.watch(() => this.#changed());
    this.#end = options.ends.watch(this.#identity, this.#netnsPath, () => this.#stop.abort());
    onAbort(this.#stop.signal, () => {
      this.#watch[Symbol.dispose]();
      this.#end[Symbol.dispose]();
    });
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
  }

  /** Watches the namespace again, or ends if it is gone. @throws NetlinkError `netns-refused` */
  #listenAgain(): void {
    using namespace = this.#options.networks.open(this.#netnsPath);
    if (namespace?.identity === this.#identity) this.#watch = namespace.watch(() => this.#changed());
    else this.#stop.abort();
  }

  #changed(): void {
    if (this.#isSettling || this.#stop.signal.aborted) return;
    this.#isSettling = true;
    const { clock } = this.#options;
    const settleMs = this.#settleMs();
    // Until the next read, further messages would cost as much as this one and carry no more information.
    if (settleMs > pauses.follow.firstMs) this.#watch[Symbol.dispose]();
    clock.sleep(settleMs, this.#stop.signal).then(
      () => this.#look(settleMs),
      () => undefined,
    );
  }

  #look(settleMs: number): void {
    this.#isSettling = false;
    this.#lastLookMs = this.#options.clock.nowMs();
    try {
      if (settleMs > pauses.follow.firstMs) this.#listenAgain();
    } catch {
      // The failure may pass, such as too many open files: the next read tries again.
      this.#changed();
    }
    if (!this.#stop.signal.aborted) this.#options.onChange();
  }

  #settleMs(): number {
    if (this.#options.clock.nowMs() - this.#lastLookMs > pauses.follow.quietMs) this.#looks = 0;
    const settleMs = pauseMs(Math.max(0, this.#looks - looksAtFirst), pauses.follow);
    this.#looks++;
    if (settleMs === flappingMs) this.#options.onFlapping?.();
    return settleMs;
  }
}
