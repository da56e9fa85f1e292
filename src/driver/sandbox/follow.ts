import { onAbort } from '../../lib/abort.ts';
import { pauseMs } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import { pauses } from '../../lib/waiting-times.ts';
import type { NamespaceOpener, NetworkNamespace } from '../vf/networks.ts';
import type { NamespaceWatcher } from './namespace-ends.ts';

/**
 * Reads after the first one before the pauses grow: changes come in bursts, as when an address is replaced, or a link goes
 * down and up. A pod that keeps changing is read less and less often, and its events are ignored in between.
 */
const looksAtFirst = 8;
/** Pause between reads from which on the pod counts as flapping, ms. */
const flappingMs = 4_000;

export interface FollowOptions {
  networks: NamespaceOpener;
  ends: NamespaceWatcher;
  /** Called some time after a change. */
  onChange: () => void;
  /** Called once when a pod keeps changing its links, and again only after it has been quiet. */
  onFlapping?: () => void;
  clock: Clock;
}

/**
 * Follows changes of links and addresses in a pod's network namespace, from its creation on. It keeps the namespace alive,
 * so that it is disposed of before a VF is detached. It ends by itself when another namespace is at the path, or none: only
 * then do the VFs of a deleted namespace return to the host.
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
   * @param namespace may be closed afterwards
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

  /** Watches again, or ends if the namespace is gone. @throws NetlinkError `netns-refused` */
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
    // Each further message would cost as much as this one and carry no more information.
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
      // Too many open files, for example: it is tried again.
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
