import { metadataDirName } from '../layouts/layout-v1.ts';
import { createFile, type HostFile, hostPath, readFileIfThere, removeFile } from './host-file.ts';

/**
 * Where the records of prepared claims are kept, each as a text under the name of its claim's directory. A driver with a
 * store of its own keeps them there, so that its own facts and these cannot contradict each other. All methods are
 * synchronous: what a call about a claim reads and writes is one step.
 */
export interface ClaimRecords {
  /**
   * @returns `undefined` if there is none
   * @throws if it cannot be read: that never counts as "nothing prepared"
   */
  read(dir: string): string | undefined;
  /** Makes what a task writes and removes one step. Absent: each write and removal is one of its own. */
  together?(task: () => void): void;
  /** Replaces a record as a whole, or creates it. */
  write(dir: string, record: string): void;
  /** Called when everything else of the claim was removed, its directory included. */
  remove(dir: string): void;
  /** Names under which there are records: of claims whose directory may be gone. */
  names(): string[];
  /** Where a record is, for messages. */
  locate(dir: string): string;
}

/**
 * Records in files, for drivers without a store: beside the directories of the claim's requests. Only single files are
 * mounted, so no container sees it. Methods throw MetadataError `metadata-io`.
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

  /** Each is in its claim's directory. */
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
