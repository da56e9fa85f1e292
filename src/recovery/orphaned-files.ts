import type { KubeletPluginHelper } from '../kubeletplugin/index.ts';
import type { Logger } from '../logger.ts';
import type { CdiSpecs, ClaimMetadata } from '../metadata/index.ts';
import type { Store } from '../state/index.ts';

export interface OrphanedFilesOptions {
  store: Pick<Store, 'claim'>;
  metadata: Pick<ClaimMetadata, 'list' | 'removeUnclaimed'>;
  /** For each class that the driver writes, with the files that belong to it. */
  specs: Pick<CdiSpecs, 'claimUids' | 'removeClaim'>[];
  helper: Pick<KubeletPluginHelper, 'reclaim'>;
  logger: Logger;
}

/** Removes something, unless it belongs to a claim by then. */
type Removal = () => Promise<unknown>;

/**
 * Removes metadata directories and CDI specs of claims that the store does not know. They are left when an interrupted
 * unprepare is never repeated. Each is removed when it has been seen twice: what is just being created may be seen
 * before its claim is.
 */
export class OrphanedFiles {
  readonly #options: OrphanedFilesOptions;
  #suspects = new Set<string>();

  constructor(options: OrphanedFilesOptions) {
    this.#options = options;
  }

  /** @throws MetadataError `metadata-io`; StateError `store-unusable` */
  async sweep(signal: AbortSignal): Promise<void> {
    const orphans = new Map([...(await this.#directories(signal)), ...(await this.#specs())]);
    for (const [what, remove] of orphans) {
      if (signal.aborted) return;
      if (!this.#suspects.has(what)) continue;
      await remove();
      this.#options.logger.warn({ what }, 'removed what a claim has left that is not prepared any more');
    }
    this.#suspects = new Set(orphans.keys());
  }

  async #directories(signal: AbortSignal): Promise<[string, Removal][]> {
    const { metadata, helper } = this.#options;
    return (await metadata.list()).flatMap(({ dir, claim }): [string, Removal][] => {
      if (claim === undefined) return [[`metadata directory ${dir}`, () => metadata.removeUnclaimed(dir)]];
      if (this.#isKnown(claim.uid)) return [];
      const isOver = async () => !this.#isKnown(claim.uid);
      return [[`metadata of claim ${dir}, UID ${claim.uid}`, () => helper.reclaim(claim, isOver, signal)]];
    });
  }

  async #specs(): Promise<[string, Removal][]> {
    const found: [string, Removal][] = [];
    for (const [index, specs] of this.#options.specs.entries()) {
      for (const uid of (await specs.claimUids()).filter((each) => !this.#isKnown(each))) {
        const remove = async () => this.#isKnown(uid) || (await specs.removeClaim(uid));
        found.push([`CDI specs ${index} of claim UID ${uid}`, remove]);
      }
    }
    return found;
  }

  #isKnown(uid: string): boolean {
    return this.#options.store.claim(uid) !== undefined;
  }
}
