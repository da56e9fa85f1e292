import type { KubeletPluginHelper } from '../../framework/kubeletplugin/index.ts';
import { type CdiSpecs, type ClaimMetadata, claimDirName } from '../../framework/metadata/index.ts';
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

type ClaimDir = Awaited<ReturnType<ClaimMetadata['list']>>[number];

/** Removes something, unless it belongs to a claim by then. @returns whether it was removed */
type Removal = () => Promise<boolean>;

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
    const orphans = new Map([
      ...this.#directories(dirs, problems, signal),
      ...(await this.#specs(problems)),
      ...(await this.#sharedFiles(dirs, problems)),
    ]);
    for (const [what, remove] of orphans) {
      if (signal.aborted) return;
      if (this.#suspects.has(what)) await this.#remove(what, remove, problems);
    }
    this.#suspects = new Set(orphans.keys());
    this.#report(problems);
  }

  #directories(dirs: ClaimDir[], problems: unknown[], signal: AbortSignal): [string, Removal][] {
    const { metadata, helper } = this.#options;
    return dirs.flatMap(({ dir, claim, problem }): [string, Removal][] => {
      if (problem !== undefined) problems.push(problem);
      if (claim !== undefined && !this.#isKnown(claim.uid)) {
        const isOver = async () => !this.#isKnown(claim.uid);
        return [[`metadata of claim ${dir}, UID ${claim.uid}`, () => helper.reclaim(claim, isOver, signal)]];
      }
      // One without a record can be that of a claim that is being prepared, or whose record was lost.
      if (claim !== undefined || problem !== undefined || this.#isKnownDir(dir)) return [];
      return [
        [`metadata directory ${dir}`, async () => !this.#isKnownDir(dir) && (await metadata.removeUnclaimed(dir))],
      ];
    });
  }

  async #specs(problems: unknown[]): Promise<[string, Removal][]> {
    const found: [string, Removal][] = [];
    for (const [index, specs] of this.#options.specs.entries()) {
      const uids = await specs.claimUids((problem) => problems.push(problem));
      for (const uid of uids.filter((each) => !this.#isKnown(each))) {
        const remove = async () => {
          if (this.#isKnown(uid)) return false;
          await specs.removeClaim(uid);
          return true;
        };
        found.push([`CDI specs ${index} of claim UID ${uid}`, remove]);
      }
    }
    return found;
  }

  /** One that cannot be removed does not keep the others from being removed. */
  async #remove(what: string, remove: Removal, problems: unknown[]): Promise<void> {
    try {
      const isRemoved = await remove();
      if (isRemoved) this.#options.logger.warn({ what }, 'removed files of a claim that is no longer prepared');
    } catch (error) {
      // Without the store nothing is known of any claim.
      if (error instanceof StateError) throw error;
      problems.push(error);
    }
  }

  #report(problems: readonly unknown[]): void {
    const { logger } = this.#options;
    const messages = problems.map(explain);
    for (const [index, err] of problems.entries()) {
      if (this.#reported.has(messages[index] as string)) continue;
      logger.warn({ err }, 'files of a claim cannot be read or removed, and stay');
    }
    this.#reported = new Set(messages);
  }

  /** Those of claims with a directory of their own are removed with it. */
  async #sharedFiles(dirs: ClaimDir[], problems: unknown[]): Promise<[string, Removal][]> {
    // The record that cannot be read may be that of any of them.
    if (dirs.some(({ problem }) => problem !== undefined)) return [];
    const recorded = new Set(dirs.map(({ claim }) => claim?.uid));
    const found = await this.#options.metadata.listShared().catch((error: unknown) => {
      // The driver's own directories are swept even if a directory that it shares cannot be read.
      problems.push(error);
      return [];
    });
    return found
      .filter(({ claimUid }) => !recorded.has(claimUid) && !this.#isKnown(claimUid))
      .map(({ path, claimUid, remove }) => [
        `metadata file ${path} of claim UID ${claimUid}`,
        async () => {
          if (this.#isKnown(claimUid)) return false;
          await remove();
          return true;
        },
      ]);
  }

  #isKnown(uid: string): boolean {
    return this.#options.store.claim(uid) !== undefined;
  }

  /** Whether a claim of the store has a directory of this name. */
  #isKnownDir(dir: string): boolean {
    return this.#options.store.claims().some(({ identity }) => claimDirName(identity) === dir);
  }
}
