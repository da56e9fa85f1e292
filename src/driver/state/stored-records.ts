import { RecordFiles } from '../../framework/metadata/index.ts';
import type { Store } from './store.ts';

export interface StoredRecordsOptions {
  store: Pick<Store, 'path' | 'records' | 'together'>;
  /** Directory of the driver below the kubelet's `plugins`. */
  dataDir: string;
}

/** The framework's records of claims, in the driver's store. */
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

  /** @throws StateError `store-unusable` */
  override read(dir: string): string | undefined {
    return this.#store.records.read(dir);
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
