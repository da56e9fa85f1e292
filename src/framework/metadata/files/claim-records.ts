import { metadataDirName } from '../layouts/layout-v1.ts';
import { createFile, type HostFile, hostPath, readFileIfThere, removeFile } from './host-file.ts';

/**
 * Store of the records of prepared claims, each a text under the name of its claim's directory. A driver with its own store
 * keeps them there, so that its facts and these cannot contradict each other. All methods are synchronous: a call about a
 * claim reads and writes in one step.
 */
export interface ClaimRecords {
  /**
   * @returns `undefined` if there is none
   * @throws if it cannot be read: an unreadable record never counts as "nothing prepared"
   */
  read(dir: string): string | undefined;
  /** Makes all writes and removals of a task one step. Absent: each is a step of its own. */
  together?(task: () => void): void;
  /** Replaces a record as a whole, or creates it. */
  write(dir: string, record: string): void;
  /** Removes a record. Called when everything else of the claim, including its directory, is removed. */
  remove(dir: string): void;
  /** Returns the names under which records exist, also of claims without a directory. */
  names(): string[];
  /** Returns where a record is, for messages. */
  locate(dir: string): string;
}

/**
 * Records in files, for drivers without a store. They lie beside the directories of the claim's requests. Only single files are
 * mounted, so no container sees them. Methods throw MetadataError `metadata-io`.
 */
export class RecordFiles implements ClaimRecords {
  readonly #dataDir: string;

  constructor(dataDir: string) {
    this.#dataDir = dataDir;
  }

  read(dir: string): string | undefined {
    return readFileIfThere(this.#file(dir));
  }

  write(dir: string, record: string): void {
    createFile(this.#file(dir), record);
  }

  remove(dir: string): void {
    removeFile(this.#file(dir));
  }

  /** Returns the names of claims' directories with a record. */
  names(): string[] {
    return [];
  }

  locate(dir: string): string {
    return hostPath(this.#file(dir));
  }

  #file(dir: string): HostFile {
    return { base: this.#dataDir, parts: [metadataDirName, dir, 'claim.json'] };
  }
}
