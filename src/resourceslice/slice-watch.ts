import type { Clock } from '../clock.ts';
import type { Logger } from '../logger.ts';
import type { ResourceSlice } from './model.ts';
import type { SliceApi } from './slice-api.ts';

const retryMs = { first: 1_000, last: 60_000 };
/** An API server that stops ends the watches of all nodes at once; they come back over this time. */
const spreadMs = 10_000;

export interface SliceWatchOptions {
  clock: Clock;
  logger: Logger;
  /** From 0 up to 1: watches that end together shall not begin again together. */
  random: () => number;
  onChange: () => void;
}

/**
 * Tells when somebody else changes our slices. It may miss something, since the slices are looked at every few minutes
 * anyway, and it may tell too much, since looking costs one request.
 */
export class SliceWatch implements AsyncDisposable {
  readonly #api: SliceApi;
  readonly #options: SliceWatchOptions;
  readonly #stop = new AbortController();
  #resourceVersion = '';
  #running: Promise<void> | undefined;
  /** While somebody writes: what was seen meanwhile. */
  #held: ResourceSlice[] | undefined;
  #isOurs: (slice: ResourceSlice) => boolean = () => false;

  constructor(api: SliceApi, options: SliceWatchOptions) {
    this.#api = api;
    this.#options = options;
  }

  /** From the version of a list on. */
  follow(resourceVersion: string): void {
    this.#resourceVersion = resourceVersion;
    this.#running ??= this.#run();
  }

  /**
   * Keeps quiet until disposed of, and then tells if there was a change that is not ours: our own writes are seen before
   * we know their outcome.
   */
  hold(isOurs: (slice: ResourceSlice) => boolean): Disposable {
    this.#isOurs = isOurs;
    this.#held = [];
    return {
      [Symbol.dispose]: () => {
        const held = this.#held ?? [];
        this.#held = undefined;
        for (const slice of held) this.#see(slice);
      },
    };
  }

  async [Symbol.asyncDispose]() {
    this.#stop.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, logger, random, onChange } = this.#options;
    const { signal } = this.#stop;
    let pauseMs: number = retryMs.first;
    let reported = '';
    while (!signal.aborted) {
      try {
        await this.#watch(signal);
        // Servers end watches as they like; the next one goes on where this one ended.
        await clock.sleep(retryMs.first + Math.round(spreadMs * random()), signal);
        pauseMs = retryMs.first;
        reported = '';
      } catch (error) {
        if (signal.aborted) return;
        if (String(error) !== reported) logger.warn({ err: error }, 'resource slices are polled, not watched');
        reported = String(error);
        const extraMs = Math.round(Math.max(pauseMs, spreadMs) * random());
        await clock.sleep(pauseMs + extraMs, signal).catch(() => undefined);
        pauseMs = Math.min(2 * pauseMs, retryMs.last);
        // What was missed is not known; a new list also tells from where to watch.
        onChange();
      }
    }
  }

  async #watch(signal: AbortSignal): Promise<void> {
    for await (const { type, object } of this.#api.watch(this.#resourceVersion, signal)) {
      this.#resourceVersion = object.metadata.resourceVersion ?? this.#resourceVersion;
      if (type !== 'BOOKMARK') this.#see(object);
    }
  }

  #see(slice: ResourceSlice): void {
    if (this.#held !== undefined) this.#held.push(slice);
    else if (!this.#isOurs(slice)) this.#options.onChange();
  }
}
