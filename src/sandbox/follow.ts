import type { Clock } from '../clock.ts';
import type { Networks } from './networks.ts';

/** Changes come in bursts: an address is removed and another one added, a link goes down and up. */
const settleMs = 250;
/** A namespace that is gone is released within this time. Its VFs return to the host only then. */
const checkMs = 1_000;

export interface FollowOptions {
  networks: Networks;
  netnsPath: string;
  /** Called some time after a change. */
  onChange: () => void;
  clock: Clock;
}

/**
 * Follows changes of links and addresses in a pod's network namespace. It keeps the namespace alive, so it is disposed of
 * before a VF is detached, and ends by itself when there is another namespace at the path, or none.
 */
export class Follow implements Disposable {
  readonly #options: FollowOptions;
  readonly #stop = new AbortController();
  #isSettling = false;

  /** @throws NetlinkError `netns-refused` */
  constructor(options: FollowOptions) {
    this.#options = options;
    using namespace = options.networks.open(options.netnsPath);
    if (namespace === undefined) {
      this.#stop.abort();
      return;
    }
    const watch = namespace.watch(() => this.#changed());
    this.#stop.signal.addEventListener('abort', () => watch[Symbol.dispose](), { once: true });
    void this.#endWith(namespace.identity);
    // A change between the last read and now was not seen.
    this.#changed();
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
  }

  #changed(): void {
    if (this.#isSettling || this.#stop.signal.aborted) return;
    this.#isSettling = true;
    const { clock, onChange } = this.#options;
    clock.sleep(settleMs, this.#stop.signal).then(
      () => {
        this.#isSettling = false;
        onChange();
      },
      () => undefined,
    );
  }

  async #endWith(identity: string): Promise<void> {
    const { clock } = this.#options;
    const { signal } = this.#stop;
    try {
      while (this.#isStill(identity)) await clock.sleep(checkMs, signal);
    } catch {
      // Disposed of.
    }
    this.#stop.abort();
  }

  #isStill(identity: string): boolean {
    const { networks, netnsPath } = this.#options;
    try {
      using namespace = networks.open(netnsPath);
      return namespace?.identity === identity;
    } catch {
      // Too many open files, for one, say nothing about the namespace.
      return true;
    }
  }
}
