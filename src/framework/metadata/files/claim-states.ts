import type { ClaimIdentity } from '../document/document.ts';
import { MetadataError, type MetadataErrorCode } from '../errors.ts';
import type { HostDirs } from '../layouts/layout.ts';
import { claimDirName } from '../layouts/paths.ts';
import { readDocuments } from './claim-documents.ts';
import type { ClaimRecord } from './claim-record.ts';
import { type ClaimState, claimStateFile, readClaimState } from './claim-state.ts';
import type { HeldDirectories } from './held-directories.ts';
import { recoverState } from './recover-state.ts';

export interface ClaimStatesOptions {
  driver: string;
  dirs: HostDirs;
  now: () => Date;
  /** Called when the damaged record of a claim is about to be written anew. */
  onRecovered: ((claim: ClaimIdentity, problem: MetadataError) => void) | undefined;
}

/**
 * Reads the states of claims. Only a missing record means that a claim is not prepared; what cannot be read is an
 * error, except where a method says otherwise.
 */
export class ClaimStates {
  readonly #options: ClaimStatesOptions;

  constructor(options: ClaimStatesOptions) {
    this.#options = options;
  }

  /** @throws MetadataError `metadata-io`, `metadata-malformed`, `metadata-version-unknown` */
  async read(claim: ClaimIdentity, held?: HeldDirectories): Promise<ClaimState | undefined> {
    return await readClaimState(this.#options.dirs.dataDir, claim, held);
  }

  /** @throws MetadataError `metadata-io`, `metadata-version-unknown` */
  async readUnlessDamaged(claim: ClaimIdentity): Promise<ClaimState | 'damaged' | undefined> {
    return await this.read(claim).catch((error: unknown) => {
      if (isCode(error, 'metadata-malformed')) return 'damaged';
      throw error;
    });
  }

  /**
   * For a claim that is being prepared: what its files show if its record is damaged, or gone while they are there.
   * @returns `isRecorded`: whether this is what the record says
   * @throws MetadataError `metadata-io`; `metadata-version-unknown`: that of a newer version is not overwritten
   */
  async readOrRecover(
    record: ClaimRecord,
    held: HeldDirectories,
  ): Promise<{ state: ClaimState | undefined; isRecorded: boolean }> {
    const { driver, dirs, now, onRecovered } = this.#options;
    let problem: MetadataError | undefined;
    try {
      const state = await this.read(record.claim, held);
      // A claim without a directory, as most are at first, has no files.
      const hasFiles = held.find(claimStateFile(dirs.dataDir, record.claim)) !== undefined;
      if (state !== undefined || !hasFiles) return { state, isRecorded: true };
    } catch (error) {
      if (!isCode(error, 'metadata-malformed')) throw error;
      problem = error;
    }
    const state = await recoverState(record, { driver, dirs, hadRecord: problem !== undefined, now: now(), held });
    if (problem !== undefined) onRecovered?.(record.claim, problem);
    return { state, isRecorded: false };
  }

  /**
   * An unreadable record must not keep a claim from being unprepared: nothing else would ever remove it.
   * @throws MetadataError `metadata-io`
   */
  async readForRemoval(claim: ClaimIdentity, held: HeldDirectories): Promise<ClaimState | 'unreadable' | undefined> {
    return await this.read(claim, held).catch((error: unknown) => {
      if (isCode(error, 'metadata-malformed') || isCode(error, 'metadata-version-unknown')) return 'unreadable';
      throw error;
    });
  }

  /**
   * Whether the files of a directory without a readable record show that it is that of another claim of the name.
   * @throws MetadataError `metadata-io`
   */
  async isOfOther(claim: ClaimIdentity): Promise<boolean> {
    const documents = await readDocuments(this.#options.dirs.dataDir, claimDirName(claim));
    return documents.length > 0 && documents.every(({ document }) => document.claim.uid !== claim.uid);
  }
}

function isCode(error: unknown, code: MetadataErrorCode): error is MetadataError {
  return error instanceof MetadataError && error.code === code;
}
