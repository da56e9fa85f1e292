import { toError } from './errors.ts';

/**
 * Items that go through the same steps. An item that fails in a step is left out of all further steps; the other items
 * continue.
 */
export class Batch<Item extends { readonly uid: string }> {
  readonly #items: readonly Item[];
  /** Errors by UID. */
  readonly errors: Map<string, Error>;

  constructor(items: readonly Item[], errors = new Map<string, Error>()) {
    this.#items = items;
    this.errors = errors;
  }

  /** Items that have not failed. */
  get alive(): Item[] {
    return this.#items.filter(({ uid }) => !this.errors.has(uid));
  }

  /** Runs a step for one item after the other. */
  run(step: (item: Item) => void): void {
    for (const item of this.alive) {
      try {
        step(item);
      } catch (error) {
        this.errors.set(item.uid, toError(error));
      }
    }
  }

  /** Runs a step and returns a batch of its results. */
  map<Result extends { readonly uid: string }>(step: (item: Item) => Result): Batch<Result> {
    const results: Result[] = [];
    this.run((item) => results.push(step(item)));
    return new Batch(results, this.errors);
  }

  /** Runs an asynchronous step for one item after the other. */
  async each(step: (item: Item) => Promise<void>): Promise<void> {
    for (const item of this.alive)
      await step(item).catch((error: unknown) => this.errors.set(item.uid, toError(error)));
  }
}
