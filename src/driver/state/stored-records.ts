import { type ClaimRecords, RecordFiles } from '../../framework/metadata/index.ts';
import type { Store } from './store.ts';

export interface StoredRecordsOptions {
  store: Pick<Store, 'path' | 'records'>;
  /** The driver's directory below the kubelet's `plugins`. */
  dataDir: string;
}

/**
 * The framework's records of claims, in the driver's store. Version 0.1 kept them in files: a record that is still in one moves
 * to the store when it is read.
 */
export class StoredRecords implements ClaimRecords {
  readonly #store: StoredRecordsOptions['store'];
  readonly #files: RecordFiles;

  constructor({ store, dataDir }: StoredRecordsOptions) {
    this.#store = store;
    this.#files = new RecordFiles(dataDir);
  }

  /** @throws StateError `store-unusable`; MetadataError `metadata-io` */
  read(dir: string): string | undefined {
    const stored = this.#store.records.read(dir);
    if (stored !== undefined) return stored;
    const inFile = this.#files.read(dir);
    if (inFile === undefined || this.#store.records.isReadOnly) return inFile;
    this.#store.records.write(dir, inFile);
    this.#files.remove(dir);
    return inFile;
  }

  /** @throws StateError `store-unusable` */
  write(dir: string, record: string): void {
    this.#store.records.write(dir, record);
  }

  remove(dir: string): void {
    this.#store.records.delete(dir);
  }

  names(): string[] {
    return this.#store.records.names();
  }

  locate(dir: string): string {
    return `${dir} in ${this.#store.path}`;
  }
}
