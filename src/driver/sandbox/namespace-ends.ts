import { type Clock, repeat } from '../../lib/clock.ts';
import { periods } from '../../lib/waiting-times.ts';
import type { NamespaceProbe } from '../vf/networks.ts';

interface Watched {
  identity: string;
  netnsPath: string;
  onEnd: () => void;
}

export interface NamespaceWatcher {
  /** See {@link NamespaceEnds}. */
  watch(identity: string, netnsPath: string, onEnd: () => void): Disposable;
}

/**
 * Reports network namespaces that are no longer at their paths, within a second. One timer checks all of them, since a timer
 * for each would cost more on a node with hundreds of pods. Without watched namespaces there is no timer.
 */
export class NamespaceEnds implements NamespaceWatcher {
  readonly #options: { networks: NamespaceProbe; clock: Clock };
  readonly #watched = new Set<Watched>();
  #stop: AbortController | undefined;

  constructor(options: { networks: NamespaceProbe; clock: Clock }) {
    this.#options = options;
  }

  /**
   * Watches a namespace.
   * @param identity identity of the namespace that is at the path now, from `Networks.open`
   * @param onEnd called once, when the namespace is no longer at the path
   * @returns a handle that ends the watch
   */
  watch(identity: string, netnsPath: string, onEnd: () => void): Disposable {
    const watched = { identity, netnsPath, onEnd };
    this.#watched.add(watched);
    if (this.#stop === undefined) {
      this.#stop = new AbortController();
      void repeat(this.#options.clock, periods.namespaceEnds, this.#stop.signal, () => this.#look());
    }
    return { [Symbol.dispose]: () => this.#forget(watched) };
  }

  #forget(watched: Watched): void {
    this.#watched.delete(watched);
    if (this.#watched.size > 0) return;
    this.#stop?.abort();
    this.#stop = undefined;
  }

  #look(): void {
    for (const watched of [...this.#watched]) {
      if (this.#options.networks.isStill(watched.identity, watched.netnsPath)) continue;
      this.#forget(watched);
      watched.onEnd();
    }
  }
}
