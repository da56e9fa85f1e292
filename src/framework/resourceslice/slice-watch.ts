import type { Clock } from '../../lib/clock.ts';
import type { Logger } from '../../lib/logger.ts';
import { ListWatch } from '../kube/index.ts';
import type { ResourceSlice } from './model.ts';
import type { SliceApi } from './slice-api.ts';

interface SliceWatchOptions {
  clock: Clock;
  logger: Logger;
  /** See `ListWatchOptions`. */
  random?: () => number;
  onChange: () => void;
}

/**
 * Reports changes of the driver's slices by other clients. May miss a change, since the slices are read every few minutes
 * anyway, and may report too many, since reading the slices costs only one request.
 */
export class SliceWatch extends ListWatch<ResourceSlice> {
  readonly #onChange: () => void;
  /** Resolves when the slices have been listed after a failure of the watch. */
  #listed = Promise.withResolvers<void>();
  /** Changes seen while reports are held back. */
  #held: ResourceSlice[] | undefined;
  #isOurs: (slice: ResourceSlice) => boolean = () => false;

  constructor(api: Pick<SliceApi, 'watch'>, { onChange, ...options }: SliceWatchOptions) {
    super({
      ...options,
      what: 'ResourceSlices',
      open: (resourceVersion, signal) => api.watch(resourceVersion, signal),
      onChange: (slice) => this.#see(slice),
      onLost: async () => {
        this.#listed = Promise.withResolvers();
        onChange();
        await this.#listed.promise;
      },
    });
    this.#onChange = onChange;
  }

  override follow(resourceVersion: string): void {
    super.follow(resourceVersion);
    this.#listed.resolve();
  }

  override async [Symbol.asyncDispose]() {
    const ended = super[Symbol.asyncDispose]();
    this.#listed.resolve();
    await ended;
  }

  /**
   * Holds all reports back until the result is disposed of, and then reports changes that are not the driver's own: the events
   * of its writes arrive before their responses.
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

  #see(slice: ResourceSlice): void {
    if (this.#held !== undefined) this.#held.push(slice);
    else if (!this.#isOurs(slice)) this.#onChange();
  }
}
