import { pauseMs } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { pauses } from '../../lib/waiting-times.ts';
import type { WatchEvent } from './kube-client.ts';
import type { ObjectMeta } from './types.ts';

/** Time over which nodes spread their reconnections, ms: when an API server stops, the watches of all nodes end at once. */
const spreadMs = 10_000;

export interface ListWatchOptions<T> {
  /** Plural name of the watched objects, for the log: `resource slices`. */
  what: string;
  open: (resourceVersion: string, signal: AbortSignal) => AsyncIterable<WatchEvent<T>>;
  onChange: (object: T, type: 'ADDED' | 'MODIFIED' | 'DELETED') => void;
  /**
   * Called when the watch failed and changes may have been missed. List again, call `follow` with the new version, and then
   * resolve. The next watch begins only after that: otherwise the list could be older than the changes which that watch has
   * reported.
   */
  onLost: () => Promise<void>;
  clock: Clock;
  logger: Logger;
  /** Returns numbers from 0 up to 1: watches that end together must not restart together. */
  random?: () => number;
}

/** Follows the changes to a list that was read before, one watch after the other, until disposed of. */
export class ListWatch<T extends { metadata: ObjectMeta }> implements AsyncDisposable {
  readonly #options: ListWatchOptions<T>;
  readonly #stop = new AbortController();
  #resourceVersion = '';
  #running: Promise<void> | undefined;

  constructor(options: ListWatchOptions<T>) {
    this.#options = options;
  }

  /** Starts to follow the changes after a version of the list. */
  follow(resourceVersion: string): void {
    this.#resourceVersion = resourceVersion;
    this.#running ??= this.#run();
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { what, clock, logger, onLost, random = Math.random } = this.#options;
    const { signal } = this.#stop;
    let failures = 0;
    let reported = '';
    while (!signal.aborted) {
      const startMs = clock.nowMs();
      try {
        await this.#watch(signal);
        // Servers may end watches at any time; the next one continues at the same version.
        await clock.sleep(pauses.watch.firstMs + Math.round(spreadMs * random()), signal);
        failures = 0;
        reported = '';
      } catch (error) {
        if (signal.aborted) return;
        if (String(error) !== reported) logger.warn({ err: error }, `cannot watch ${what}: polling them instead`);
        reported = String(error);
        // A watch that lasted this long worked: a fault such as an expired version is cured by one new list.
        if (clock.nowMs() - startMs > pauses.watch.longestMs) failures = 0;
        const waitMs = pauseMs(failures++, pauses.watch);
        const extraMs = Math.round(Math.max(waitMs, spreadMs) * random());
        await clock.sleep(waitMs + extraMs, signal).catch(() => undefined);
        if (!signal.aborted) await onLost();
      }
    }
  }

  async #watch(signal: AbortSignal): Promise<void> {
    for await (const { type, object } of this.#options.open(this.#resourceVersion, signal)) {
      this.#resourceVersion = object.metadata.resourceVersion ?? this.#resourceVersion;
      // ERROR events never get here: the client throws for them.
      if (type !== 'BOOKMARK' && type !== 'ERROR') this.#options.onChange(object, type);
    }
  }
}
