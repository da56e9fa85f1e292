import type { Logger } from '../../lib/logger.ts';

interface MetadataRestorer {
  /** See `KubeletPluginHelper`. */
  restoreMetadata(): Promise<Error[]>;
}

/**
 * Recreates the files of claims from their records when the driver starts: something may have removed or damaged them while
 * the driver did not run. After a disk failure, a later round of reconciliation tries again.
 */
export class RecordedFiles {
  readonly #helper: MetadataRestorer;
  readonly #logger: Logger;
  #isDone = false;

  constructor(helper: MetadataRestorer, logger: Logger) {
    this.#helper = helper;
    this.#logger = logger;
  }

  /** Recreates the files. Does nothing once all files were recreated. Never rejects. */
  async restore(): Promise<void> {
    if (this.#isDone) return;
    const failures = await this.#helper.restoreMetadata().catch((error: unknown) => [error]);
    for (const err of failures) this.#logger.warn({ err }, 'cannot restore the files of a claim from its record');
    this.#isDone = failures.length === 0;
  }
}
