import { RecordFiles } from '../../framework/metadata/index.ts';
import type { Store } from './store.ts';

export interface StoredRecordsOptions {
  store: Pick<Store, 'path' | 'records' | 'together'>;
  /** The driver's directory below the kubelet's `plugins`. */
  dataDir: string;
}

/**
 * The framework's records of claims, in the driver's store. Previews of 0.1 kept them in files: a record that is still in one
 * moves to the store when it is read.
 */
export class StoredRecords extends RecordFiles {
  readonly #store: StoredRecordsOptions['store'];

  constructor({ store, dataDir }: StoredRecordsOptions) {
    super(dataDir);
    this.#store = store;
  }

  /** @throws StateError `store-unusable` */
  together(task: () => void): void {
    this.#store.together(task);
  }

  /** @throws StateError `store-unusable`; MetadataError `metadata-io` */
  override read(dir: string): string | undefined {
    const stored = this.#store.records.read(dir);
    if (stored !== undefined) return stored;
    const inFile = super.read(dir);
    if (inFile === undefined || this.#store.records.isReadOnly) return inFile;
    this.#store.records.write(dir, inFile);
    super.remove(dir);
    return inFile;
  }

  /** @throws StateError `store-unusable` */
  override write(dir: string, record: string): void {
    this.#store.records.write(dir, record);
  }

  override remove(dir: string): void {
    this.#store.records.delete(dir);
  }

  override names(): string[] {
    return this.#store.records.names();
  }

  override locate(dir: string): string {
    return `${dir} in ${this.#store.path}`;
  }
}
