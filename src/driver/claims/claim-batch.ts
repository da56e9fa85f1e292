import type { Store } from '../state/index.ts';

/**
 * Claims of one call that go through the same steps. A claim that fails in a step takes no further part, and does not
 * affect the others.
 */
export class ClaimBatch<Work extends { readonly uid: string }> {
  readonly #store: Pick<Store, 'together'>;
  readonly #works: readonly Work[];
  /** By UID of the claim. */
  readonly errors = new Map<string, Error>();

  constructor(store: Pick<Store, 'together'>, works: readonly Work[]) {
    this.#store = store;
    this.#works = works;
  }

  /** Claims that have not failed. */
  get alive(): Work[] {
    return this.#works.filter(({ uid }) => !this.errors.has(uid));
  }

  /** Runs an asynchronous step for one claim after the other. */
  async each(step: (work: Work) => Promise<void>): Promise<void> {
    for (const work of this.alive) await step(work).catch((error: Error) => this.errors.set(work.uid, error));
  }

  /** Stores a step of all claims in one transaction. @throws StateError if nothing of it could be stored */
  together(step: (work: Work) => void): void {
    this.#store.together(() => {
      for (const work of this.alive) {
        try {
          step(work);
        } catch (error) {
          this.errors.set(work.uid, error as Error);
        }
      }
    });
  }
}
