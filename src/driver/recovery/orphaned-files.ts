import type { KubeletPluginHelper } from '../../framework/kubeletplugin/index.ts';
import { type CdiSpecs, type ClaimDir, type ClaimMetadata, claimDirName } from '../../framework/metadata/index.ts';
import { explain } from '../../lib/errors.ts';
import type { Logger } from '../../lib/logger.ts';
import { StateError, type Store } from '../state/index.ts';

export interface OrphanedFilesOptions {
  store: Pick<Store, 'claim' | 'claims'>;
  metadata: Pick<ClaimMetadata, 'list' | 'listShared' | 'removeUnclaimed'>;
  /** For each class that the driver writes, with the files that belong to it. */
  specs: Pick<CdiSpecs, 'claimUids' | 'removeClaim'>[];
  helper: Pick<KubeletPluginHelper, 'reclaim'>;
  logger: Logger;
}

/** Something that no claim has, under the name that the log gives it. */
interface Orphan {
  what: string;
  /** Whether a claim has it by now. */
  isKnown: () => boolean;
  /** @returns `false` if it was not removed */
  remove: () => Promise<unknown>;
}

/**
 * Removes metadata directories, metadata files elsewhere and CDI specs of claims that the store does not know. They are
 * left when an interrupted unprepare is never repeated, or when an instance could not reach a directory. Each is removed
 * only by the second sweep that finds it, because files of a claim being prepared appear before its row does. What cannot
 * be read is reported and stays: it may belong to a claim whose containers run.
 */
export class OrphanedFiles {
  readonly #options: OrphanedFilesOptions;
  #suspects = new Set<string>();
  /** Problems of the last sweep, so that each is logged once while it lasts. */
  #reported = new Set<string>();

  constructor(options: OrphanedFilesOptions) {
    this.#options = options;
  }

  /** @throws MetadataError `metadata-io`; StateError `store-unusable` */
  async sweep(signal: AbortSignal): Promise<void> {
    const problems: unknown[] = [];
    const dirs = await this.#options.metadata.list();
    const orphans = [
      ...this.#directories(dirs, problems, signal),
      ...(await this.#specs(problems)),
      ...(await this.#sharedFiles(dirs, problems)),
    ];
    for (const orphan of orphans) {
      if (signal.aborted) return;
      if (this.#suspects.has(orphan.what)) await this.#remove(orphan, problems);
    }
    this.#suspects = new Set(orphans.map(({ what }) => what));
    this.#report(problems);
  }

  #directories(dirs: ClaimDir[], problems: unknown[], signal: AbortSignal): Orphan[] {
    const { metadata, helper } = this.#options;
    return dirs.flatMap(({ dir, claim, problem }): Orphan[] => {
      if (problem !== undefined) problems.push(problem);
      const isKnown = () => (claim === undefined ? this.#isKnownDir(dir) : this.#isKnown(claim.uid));
      // One without a record can be that of a claim that is being prepared, or whose record was lost.
      if (problem !== undefined || isKnown()) return [];
      if (claim === undefined) {
        return [{ what: `metadata directory ${dir}`, isKnown, remove: () => metadata.removeUnclaimed(dir) }];
      }
      const remove = () => helper.reclaim(claim, async () => !isKnown(), signal);
      return [{ what: `metadata of claim ${dir}, UID ${claim.uid}`, isKnown, remove }];
    });
  }

  async #specs(problems: unknown[]): Promise<Orphan[]> {
    const found: Orphan[] = [];
    for (const [index, specs] of this.#options.specs.entries()) {
      for (const uid of await specs.claimUids((problem) => problems.push(problem))) {
        found.push(...this.#ofClaim(uid, `CDI specs ${index}`, () => specs.removeClaim(uid)));
      }
    }
    return found;
  }

  #ofClaim(uid: string, what: string, remove: () => Promise<void>): Orphan[] {
    const isKnown = () => this.#isKnown(uid);
    return isKnown() ? [] : [{ what: `${what} of claim UID ${uid}`, isKnown, remove }];
  }

  /** One that cannot be removed does not keep the others from being removed. */
  async #remove({ what, isKnown, remove }: Orphan, problems: unknown[]): Promise<void> {
    try {
      if (isKnown() || (await remove()) === false) return;
      this.#options.logger.warn({ what }, 'removed files of a claim that is no longer prepared');
    } catch (error) {
      // Without the store nothing is known of any claim.
      if (error instanceof StateError) throw error;
      problems.push(error);
    }
  }

  #report(problems: readonly unknown[]): void {
    const { logger } = this.#options;
    for (const err of problems.filter((problem) => !this.#reported.has(explain(problem)))) {
      logger.warn({ err }, 'files of a claim cannot be read or removed, and stay');
    }
    this.#reported = new Set(problems.map(explain));
  }

  /** Those of claims with a directory of their own are removed with it. */
  async #sharedFiles(dirs: ClaimDir[], problems: unknown[]): Promise<Orphan[]> {
    // The record that cannot be read may be that of any of them.
    if (dirs.some(({ problem }) => problem !== undefined)) return [];
    const recorded = new Set(dirs.map(({ claim }) => claim?.uid));
    const found = await this.#options.metadata.listShared().catch((error: unknown) => {
      // The driver's own directories are swept even if a directory that it shares cannot be read.
      problems.push(error);
      return [];
    });
    const strays = found.filter(({ claimUid }) => !recorded.has(claimUid));
    return strays.flatMap(({ path, claimUid, remove }) => this.#ofClaim(claimUid, `metadata file ${path}`, remove));
  }

  #isKnown(uid: string): boolean {
    return this.#options.store.claim(uid) !== undefined;
  }

  /** Whether a claim of the store has a directory of this name. */
  #isKnownDir(dir: string): boolean {
    return this.#options.store.claims().some(({ identity }) => claimDirName(identity) === dir);
  }
}
