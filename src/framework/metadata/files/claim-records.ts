import { metadataDirName } from '../layouts/layout-v1.ts';
import { createFile, type HostFile, hostPath, readFileIfThere, removeFile } from './host-file.ts';

/**
 * Store of the records of prepared claims. Each record is a text under the name of its claim's directory. A driver with a store
 * of its own keeps the records there, so that they cannot contradict its other data. All methods are synchronous: a call about
 * a claim reads and writes in one step.
 */
export interface ClaimRecords {
  /**
   * Reads a record.
   * @returns `undefined` if there is none
   * @throws an error if the record cannot be read: an unreadable record never counts as "nothing prepared"
   */
  read(dir: string): string | undefined;
  /** Runs a task whose writes and removals become one step. Absent: each write or removal is a step of its own. */
  together?(task: () => void): void;
  /** Replaces a record as a whole, or creates it. */
  write(dir: string, record: string): void;
  /** Removes a record. Called after the rest of the claim, including its directory, is removed. */
  remove(dir: string): void;
  /** Returns the names of all records, also of claims without a directory. */
  names(): string[];
  /** Returns the place of a record, for messages. */
  locate(dir: string): string;
}

/**
 * Records in files, for drivers without a store. The files are beside the directories of the claim's requests, and no container
 * sees them, since only single files are mounted. Methods throw MetadataError `metadata-io`.
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
