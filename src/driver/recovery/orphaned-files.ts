import { type CdiSpecs, type ClaimMetadata, claimKey, MetadataError } from '../../framework/metadata/index.ts';
import { explain } from '../../lib/errors.ts';
import type { Locks } from '../../lib/keyed-mutex.ts';
import type { Logger } from '../../lib/logger.ts';
import type { StoredClaims } from '../state/index.ts';

export interface OrphanedFilesOptions {
  store: StoredClaims;
  metadata: Pick<ClaimMetadata, 'dirs' | 'removeDir' | 'removeUnknown'>;
  /** CDI specs of the driver's own CDI classes. */
  specs: readonly CdiSpecs[];
  locks: Locks;
  logger: Logger;
}

/**
 * Removes metadata directories, CDI specs and shared files of claims that the store does not have. Normally there are none: a
 * claim is stored before its first file is written, and until the last one is removed. But a killed driver leaves directories
 * that it was removing in the background, and files of unknown claims remain after a power failure, or with another store.
 */
export class OrphanedFiles {
  readonly #options: OrphanedFilesOptions;
  /** Problems of the last sweep: each is logged only once while it lasts. */
  #reported = new Set<string>();

  constructor(options: OrphanedFilesOptions) {
    this.#options = options;
  }

  /**
   * Runs one sweep. @throws MetadataError `metadata-io`; StateError `store-unusable`; the signal's reason if it fires during
   * the wait for a lock
   */
  async sweep(signal: AbortSignal): Promise<void> {
    const { metadata, specs, store, locks, logger } = this.#options;
    const known = () => new Set(store.claims().map(({ identity }) => claimKey(identity)));
    // The directories are listed before the store is read: a claim is in the store before it has a directory.
    const dirs = metadata.dirs();
    const hadClaim = known();
    const problems = new Set<string>();
    for (const dir of dirs.filter((name) => !hadClaim.has(name))) {
      try {
        const remove = async () => {
          // A claim with this directory may have been stored in the meantime.
          if (known().has(dir)) return;
          metadata.removeDir(dir);
          logger.warn({ dir }, 'removed the metadata directory of a claim that is no longer prepared');
        };
        await locks.run(dir, remove, signal);
      } catch (err) {
        this.#note(err, problems);
      }
    }
    const uids = () => new Set(store.claims().map(({ identity }) => identity.uid));
    for (const files of [metadata, ...specs]) {
      try {
        for (const path of files.removeUnknown(uids)) {
          logger.warn({ path }, 'removed a file of a claim that is no longer prepared');
        }
      } catch (err) {
        this.#note(err, problems);
      }
    }
    this.#reported = problems;
  }

  #note(err: unknown, problems: Set<string>): void {
    if (!(err instanceof MetadataError)) throw err;
    const problem = explain(err);
    problems.add(problem);
    if (!this.#reported.has(problem))
      this.#options.logger.warn({ err }, 'cannot remove files of claims that are no longer prepared');
  }
}
